"""Programs' and operators' requests, on stores in this process: submits, forgets, and cursors tampered with."""

import base64
import random
from functools import cache
from typing import Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.engine.audit import Principal
from rdq_core.errors import StaleCursor
from rdq_core.handlers.registry import Registry
from rdq_core.ops.requests import answer
from rdq_core.testing.embedded import Embedded, in_memory
from tests.fuzzing.mutation import of_bytes, of_text
from tests.fuzzing.stored import QUEUE

_RECORDS: Final = 5
_MOST: Final = 300


@cache
def _local() -> Embedded:
    registry = Registry(queues=[QUEUE])
    local = in_memory({QUEUE: {"index_shards": 2}}, registry=registry)
    for number in range(_RECORDS):
        local.rdq.submit(QUEUE, "nobody-knows", number)
        with local.parts.auditor(Principal("ann")).recorded("dlq.redrive", QUEUE, detail={"number": number}):
            local.advance("1s")
    local.drain()
    return local


def submit(data: Any) -> None:
    """A submit of whatever arguments, to a store that begins anew now and then."""
    if isinstance(data, dict):
        given = {str(name): value for name, value in data.items()}
        (answer,) = _local().rdq.submit_many([given])
        if isinstance(answer, Exception):
            raise answer
        if _local().clock.monotonic() > _MOST:
            _local.cache_clear()
        _local().advance("1s")


def forget(target: str) -> None:
    """Everything of a target is forgotten, whatever was submitted with it: afterwards there is nothing left of it."""
    rdq: Rdq = _local().rdq
    rdq.forget(target=target)
    assert rdq.forget(target=target) == 0


# -- cursors -----------------------------------------------------------------------------------------------------------


@cache
def _cursors() -> list[str]:
    """Real ones: of a list of dead letters, and of the audit log."""
    pages = [
        _local().parts.dead_letters().entries(QUEUE, page_size=1).next_cursor,
        _local().parts.audit_desk().list(QUEUE, page_size=1)["next_cursor"],
    ]
    assert None not in pages
    return [str(cursor) for cursor in pages]


def throw_cursor(dice: random.Random) -> str:
    """A cursor that somebody has had in their hands: changed as text, or as what is below its signature."""
    cursor = dice.choice(_cursors())
    if dice.random() < 0.5:
        return of_text(dice, cursor)
    told = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    return base64.urlsafe_b64encode(of_bytes(dice, told)).decode().rstrip("=")


def read_cursor(cursor: str) -> None:
    """A list goes on from it."""
    for read in (
        lambda: _local().parts.dead_letters().entries(QUEUE, page_size=3, cursor=cursor),
        lambda: _local().parts.audit_desk().list(QUEUE, page_size=3, cursor=cursor),
    ):
        try:
            read()
        except StaleCursor:
            continue
        return
    raise StaleCursor("neither list goes on from it")


# -- operators ---------------------------------------------------------------------------------------------------------


def ask(document: Any) -> None:
    """An operator's request."""
    if isinstance(document, dict):
        answer(document, _local().parts, lambda: Principal("ann"))
