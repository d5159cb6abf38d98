"""Concurrency keys: an item of the control table names the claim that holds the key.

    claim ── row and key in one transaction ──► in flight ──► settled; the key is freed, best effort

The invariant: a key is held exactly as long as the task that its item names, read consistently, is
in flight under that key, with a lapsed lease too. So an item that was not deleted costs the next
claim one read, and no clock decides who holds a key.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

from rdq_core.domain.task import Status, Task
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.expressions import (
    KEY_IS_AS_SEEN,
    KEY_IS_FREE,
    KEY_IS_HELD_BY_CLAIM,
    all_of,
)
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.sender import ConditionFailed, conditioned
from rdq_core.stores.dynamodb.values import Item, number, text


def taking_key(
    access: Access, task: Task, fencing_token: int, seen: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The part of a transaction that takes a task's key for the claim of this fencing token.

    `seen` is the item that is taken over because its task is not in flight; None for a free key.
    """
    item = {
        **_item_key(task),
        Attr.TASK_ID: text(task.id),
        Attr.FENCING_TOKEN: number(fencing_token),
    }
    put = {"TableName": access.tables.control, "Item": item}
    if seen is None:
        return {"Put": conditioned(put, all_of(KEY_IS_FREE), {})}
    holder = {":key_task": seen[Attr.TASK_ID], ":key_fence": seen[Attr.FENCING_TOKEN]}
    return {"Put": conditioned(put, all_of(KEY_IS_AS_SEEN), holder)}


def is_key_held(access: Access, seen: Mapping[str, Any], task: Task) -> bool:
    """Whether the task that a key's item names is in flight under the key of this task. The row is
    read after the item was: in the other order, a claim in between would be missed.
    """
    holder = access.state(seen[Attr.TASK_ID]["S"])
    return (
        holder is not None
        and holder.task.status is Status.IN_FLIGHT
        and holder.task.queue == task.queue
        and holder.task.concurrency_key == task.concurrency_key
    )


def free_key(access: Access, task: Task, fencing_token: int) -> None:
    """Free a task's key, if it has one, after the claim of this fencing token was settled.

    Always after the settling write: freed earlier, two tasks of the key could run. A failure is
    harmless, since the next claim finds that the task is not in flight any more.
    """
    if task.concurrency_key is None:
        return
    claim = {":key_task": text(task.id), ":fence": number(fencing_token)}
    with contextlib.suppress(ConditionFailed, StoreFailed):
        access.sender.delete(
            access.tables.control, _item_key(task), all_of(KEY_IS_HELD_BY_CLAIM), claim
        )


def _item_key(task: Task) -> Item:
    # A concurrency key may be private, such as a customer's address, so only its digest is stored
    # under a name that operators see.
    digest = hashlib.sha256((task.concurrency_key or "").encode()).hexdigest()[:32]
    return {Attr.PK: text(f"slot#{task.queue}#{digest}"), Attr.SK: text("holder")}
