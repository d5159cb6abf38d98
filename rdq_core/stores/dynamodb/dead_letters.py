"""The DLQ: the writes that end in it, and reading its entries.

The invariant: the state row and the dead-letter entry change in one transaction, so that neither
ever says DEAD alone.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from rdq_core.domain.attempt import Attempt
from rdq_core.domain.dead import DeadEntry, entry_of
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Verb, lost
from rdq_core.domain.task import Failure, Status
from rdq_core.domain.text import truncate
from rdq_core.engine.ports import Page
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.access import Access, is_token, key
from rdq_core.stores.dynamodb.ambiguity import SettlingWrite, was_our_write
from rdq_core.stores.dynamodb.concurrency_keys import free_key
from rdq_core.stores.dynamodb.expressions import (
    IS_DUE,
    IS_HELD_BY_CALLER,
    all_of,
    change,
    values_at,
)
from rdq_core.stores.dynamodb.history import appended, next_record
from rdq_core.stores.dynamodb.schema import DEAD_INDEX, ENTRY, Attr, queue_of, queue_shard
from rdq_core.stores.dynamodb.sender import ConditionFailed
from rdq_core.stores.dynamodb.settling import ENDS_TASK, ended, marks
from rdq_core.stores.dynamodb.state_row import StateRow
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    item_size,
    moment,
    number,
    text,
    text_of,
    with_end,
)

_ENTRY_BYTES: Final = 1024
_SHORTEST_TEXT: Final = 32


class DeadLetterVerbs:
    """The verbs of `TaskStore` that end in DEAD."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def dead_letter(
        self,
        claim: Claim,
        attempt: Attempt | None,
        failure: Failure,
        *,
        now: datetime,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> None:
        """See `TaskStore.dead_letter`."""
        row = self._access.held(claim, Verb.DEAD_LETTER)
        death = _Death(row, attempt, failure, claim.claim_id, now, fingerprint, expires_at)
        if not self._move_to_dlq(death, claim.token, all_of(IS_HELD_BY_CALLER)):
            raise lost(claim.task.id, Verb.DEAD_LETTER)

    def dead_letter_lapsed(
        self,
        lapsed: Claim,
        attempt: Attempt,
        failure: Failure,
        grant: Grant,
        *,
        fingerprint: str,
        expires_at: datetime | None,
    ) -> bool:
        """See `TaskStore.dead_letter_lapsed`."""
        if not is_token(lapsed.token):
            return False
        row = self._access.held(lapsed, Verb.DEAD_LETTER)
        death = _Death(row, attempt, failure, grant.claim_id, grant.now, fingerprint, expires_at)
        return self._move_to_dlq(death, lapsed.token, all_of(IS_HELD_BY_CALLER, IS_DUE))

    def _move_to_dlq(self, death: "_Death", token: str, condition: str) -> bool:
        row = death.row
        ends, unending = self._access.extend_for_row(
            row, expires_at=death.expires_at, now=death.now
        )
        record = (
            None
            if death.attempt is None
            else next_record(row, death.attempt, claim_id=death.claim_id)
        )
        sets = {
            **ended(Status.DEAD, now=death.now, expires_at=death.expires_at),
            **marks(death.claim_id, Verb.DEAD_LETTER),
            Attr.FAILURE: text(death.failure.code),
            **ends,
        }
        # The record before the transaction, which makes it history.
        if record is not None:
            self._access.history.put(row.task.id, record)
            sets |= appended(row, record)
        update = self._access.state_update(
            row.task.id,
            change(sets, (*ENDS_TASK, *unending)),
            condition,
            {**values_at(death.now), ":token": text(token)},
        )
        # In one transaction, so that a dead row always has its entry and no other row has one. The
        # entry needs no condition: the row's decides for both.
        put = {"Put": {"TableName": self._access.tables.dlq, "Item": death.entry_item()}}
        try:
            self._access.sender.transact([update, put], nonce=self._access.ids.nonce())
        except ConditionFailed as refused:
            write = SettlingWrite(
                task_id=row.task.id,
                life=row.life,
                claim_id=death.claim_id,
                verb=Verb.DEAD_LETTER,
                record_key=None if record is None else record.key,
            )
            if not was_our_write(self._access, write, refused.row):
                return False
        free_key(self._access, row.task, row.fencing_token)
        return True


@dataclass(frozen=True, slots=True)
class _Death:
    """How a task dies: `attempt` is its last one, None when the claim ends without one."""

    row: StateRow
    attempt: Attempt | None
    failure: Failure
    claim_id: str
    now: datetime
    fingerprint: str
    expires_at: datetime | None

    def entry_item(self) -> Item:
        """The dead-letter entry."""
        row = self.row
        task = replace(row.task, status=Status.DEAD, completed_at=self.now, failure=self.failure)
        entry = entry_of(
            task,
            attempts=row.history_length + (self.attempt is not None),
            payload_size=row.payload_size,
            fingerprint=self.fingerprint,
        )
        return entry_item(entry, life=row.life, partition=row.partition, expires_at=self.expires_at)


# -- reading the DLQ -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Head:
    """The next entries of a shard, from one query. `more` says whether there are others after
    them.
    """

    shard: int
    items: list[Item]
    more: bool


class DeadLetterReads:
    """The verbs of `TaskStore` that read the DLQ.

    A queue's entries lie in several shards of an index. A page merges the heads of the shards and
    stores, for each shard, the last entry that it returned: so entries that come or go between two
    pages make no other entry be skipped or repeated.
    """

    def __init__(self, access: Access, shards_ever: Callable[[str], int]) -> None:
        self._access = access
        self._shards_ever = shards_ever

    def dead_entry(self, task_id: str) -> DeadEntry | None:
        """See `TaskStore.dead_entry`."""
        row = self._access.unexpired(task_id, self._access.clock.now())
        if row is None or row.task.status is not Status.DEAD:
            return None
        item = self._access.sender.get(self._access.tables.dlq, key(task_id, ENTRY))
        # The entry of an earlier life is one that TTL has not removed yet.
        if item is None or item.get(Attr.LIFE) != text(row.life):
            return None
        return read_entry(item)

    def bears_mark(self, task_id: str, op_id: str) -> bool:
        """See `TaskStore.bears_mark`."""
        row = self._access.unexpired(task_id, self._access.clock.now())
        return row is not None and row.item.get(Attr.OP_ID) == text(op_id)

    def dead(self, queue: str, *, limit: int, after: Any = None) -> Page[DeadEntry]:
        """See `TaskStore.dead`. Oldest death first.

        Expired and unreadable entries are left out, so a page may have fewer entries than `limit`,
        even none, without being the last. `next` is plain JSON data.
        """
        last: dict[str, list[Any]] = dict(after or {})
        heads = [self._head(queue, shard, limit, last) for shard in range(self._shards_ever(queue))]
        entries: list[DeadEntry] = []
        now = self._access.clock.now()
        for read, (shard, item) in enumerate(_merge(heads)):
            if read == limit:
                return Page(entries, last)
            last[str(shard)] = [item[Attr.DEAD_AT]["N"], item[Attr.TASK_ID]["S"]]
            # It counts as read even if it is left out: a page of expired entries makes progress.
            entry = _unexpired_entry(item, now)
            if entry is not None:
                entries.append(entry)
        return Page(entries, last if any(head.more for head in heads) else None)

    def _head(self, queue: str, shard: int, limit: int, last: Mapping[str, Any]) -> _Head:
        partition = text(queue_shard(queue, shard))
        request: dict[str, Any] = {
            "TableName": self._access.tables.dlq,
            "IndexName": DEAD_INDEX,
            "KeyConditionExpression": "#queue_shard = :queue_shard",
            "Limit": limit,
        }
        if str(shard) in last:
            dead_at, task_id = last[str(shard)]
            # DynamoDB goes on after a key that no entry has any more, too.
            request["ExclusiveStartKey"] = {
                **key(task_id, ENTRY),
                Attr.QUEUE_SHARD: partition,
                Attr.DEAD_AT: {"N": dead_at},
            }
        answer = self._access.sender.query(request, {":queue_shard": partition})
        return _Head(shard, answer["Items"], "LastEvaluatedKey" in answer)


def _merge(heads: list[_Head]) -> Iterator[tuple[int, Item]]:
    """The entries of all shards in the order of their deaths. The order within a shard, which its
    next page depends on, is kept.

    It ends where a shard runs out that has more entries: those may precede the remaining ones of
    other shards.
    """
    waiting = [(_dead_at(head.items[0]), head.shard, 0, head) for head in heads if head.items]
    heapq.heapify(waiting)
    while waiting:
        _, shard, position, head = heapq.heappop(waiting)
        yield shard, head.items[position]
        if position + 1 < len(head.items):
            after = head.items[position + 1]
            heapq.heappush(waiting, (_dead_at(after), shard, position + 1, head))
        elif head.more:
            return


def _dead_at(item: Item) -> Decimal:
    # Not an int: an entry that was edited by hand may have any number here, and must not stop the
    # others from being listed.
    return Decimal(item[Attr.DEAD_AT]["N"])


def _unexpired_entry(item: Item, now: datetime) -> DeadEntry | None:
    try:
        ends_at = Reader(item, "a dead-letter entry").maybe_seconds(Attr.EXPIRES_AT)
        return None if ends_at is not None and ends_at <= now else read_entry(item)
    except CorruptItem:
        return None


# -- an entry as an item ---------------------------------------------------------------------------


def entry_item(entry: DeadEntry, *, life: str, partition: str, expires_at: datetime | None) -> Item:
    """A dead-letter entry as an item. Its type and its message are cut so that it stays within one
    write unit.
    """
    item: Item = {
        Attr.TASK_ID: text(entry.task_id),
        Attr.KIND: text(ENTRY),
        Attr.LIFE: text(life),
        Attr.QUEUE_SHARD: text(partition),
        Attr.DEAD_AT: moment(entry.dead_at),
        Attr.HANDLER_REF: text(entry.handler_ref),
        Attr.CREATED_AT: moment(entry.created_at),
        Attr.ERROR_CODE: text(entry.code),
        Attr.FINGERPRINT: text(entry.fingerprint),
        Attr.ATTEMPT_COUNT: number(entry.attempts),
        Attr.REDRIVE_COUNT: number(entry.redrive_count),
        Attr.PAYLOAD_SIZE: number(entry.payload_size),
    }
    item = with_end(item, expires_at)
    if entry.handler_version is not None:
        item[Attr.HANDLER_VERSION] = text(entry.handler_version)
    for attr, content in ((Attr.ERROR_TYPE, entry.type), (Attr.ERROR_MESSAGE, entry.message)):
        item |= _cut(attr, content, _ENTRY_BYTES - item_size(item))
    return item


def _cut(attr: Attr, content: str | None, room: int) -> Item:
    limit = room - len(attr)
    if content is None or (len(content.encode()) > limit and limit < _SHORTEST_TEXT):
        return {}
    return {attr: text(content if len(content.encode()) <= limit else truncate(content, limit))}


def read_entry(item: Mapping[str, Any]) -> DeadEntry:
    """A dead-letter entry from its item. Raises CorruptItem."""
    task_id = text_of(item, Attr.TASK_ID) or "?"
    reader = Reader(item, f"the dead-letter entry of task {task_id}", task_id)
    return DeadEntry(
        task_id=reader.text(Attr.TASK_ID),
        queue=queue_of(reader.text(Attr.QUEUE_SHARD)),
        handler_ref=reader.text(Attr.HANDLER_REF),
        handler_version=reader.maybe_text(Attr.HANDLER_VERSION),
        dead_at=reader.moment(Attr.DEAD_AT),
        created_at=reader.moment(Attr.CREATED_AT),
        code=reader.text(Attr.ERROR_CODE),
        type=reader.maybe_text(Attr.ERROR_TYPE),
        message=reader.maybe_text(Attr.ERROR_MESSAGE),
        fingerprint=reader.text(Attr.FINGERPRINT),
        attempts=reader.number(Attr.ATTEMPT_COUNT),
        redrive_count=reader.number(Attr.REDRIVE_COUNT),
        payload_size=reader.number(Attr.PAYLOAD_SIZE),
    )
