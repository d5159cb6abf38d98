"""Programs' and operators' requests, on stores in this process: submits, forgets, and cursors
tampered with.
"""

import base64
import random
from functools import cache
from typing import Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.domain import ids
from rdq_core.engine.auditor import Principal
from rdq_core.errors import StaleCursor
from rdq_core.handlers.registry import Registry
from rdq_core.ops.audit_reader import AuditReader
from rdq_core.ops.dead_letters import DeadLetters
from rdq_core.ops.requests import OPERATIONS, answer
from rdq_core.runtime.wiring import Parts
from rdq_core.testing.embedded import Embedded, in_memory
from tests.fuzzing.mutation import of_bytes, of_text
from tests.fuzzing.stored import QUEUE

REQUESTS: Final[tuple[Any, ...]] = (
    *({"op": op} for op in OPERATIONS),
    {
        "op": "dlq.list",
        "queue": "billing",
        "type": "*Timeout*",
        "since": "2026-07-20T14:03:22.117Z",
        "page_size": 5,
    },
    {
        "op": "dlq.redrive",
        "queue": "billing",
        "all": True,
        "rate": "50/s",
        "dry_run": True,
        "reason": "mended",
    },
    {"op": "dlq.redrive", "queue": "billing", "ids": [ids.encode_id(1)], "dry_run": False},
    {"op": "task.get", "id": ids.encode_id(1)},
    {"op": "task.list", "queue": "billing", "status": "PENDING"},
    {"op": "queue.set", "queue": "billing", "set": ["retry.max_attempts=8"], "reason": "a rush"},
    {
        "op": "queue.apply",
        "config": {"config_version": 1, "queues": {"billing": {"owner": "team"}}},
    },
    {"op": "queue.ladder", "queue": "billing"},
    {"op": "audit.list", "queue": "billing", "page_size": 2},
)
"""Requests of operators: every operation, and some that are right."""
_RECORDS: Final = 5
_MOST: Final = 300


@cache
def _local() -> Embedded:
    registry = Registry(queues=[QUEUE])
    local = in_memory({QUEUE: {"index_shards": 2}}, registry=registry)
    for number in range(_RECORDS):
        local.rdq.submit(QUEUE, "nobody-knows", number)
        with local.parts.auditor(Principal("ann")).recorded(
            "dlq.redrive", QUEUE, detail={"number": number}
        ):
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
        _pass_time()


def _pass_time() -> None:
    if _local().clock.monotonic() > _MOST:
        _local.cache_clear()
    _local().advance("1s")


def forget(target: str) -> None:
    """Everything of a target is forgotten, whatever was submitted with it: afterwards there is
    nothing left of it.
    """
    rdq: Rdq = _local().rdq
    rdq.forget(target=target)
    assert rdq.forget(target=target) == 0


# -- cursors ---------------------------------------------------------------------------------------


@cache
def _cursors() -> list[str]:
    """Real ones: of a list of dead letters, and of the audit log."""
    pages = [
        DeadLetters(_local().parts).entries(QUEUE, page_size=1).next_cursor,
        AuditReader(_local().parts).list(QUEUE, page_size=1)["next_cursor"],
    ]
    assert None not in pages
    return [str(cursor) for cursor in pages]


def throw_cursor(dice: random.Random) -> str:
    """A cursor that somebody has had in their hands: changed as text, or as what is below its
    signature.
    """
    cursor = dice.choice(_cursors())
    if dice.random() < 0.5:
        return of_text(dice, cursor)
    told = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    return base64.urlsafe_b64encode(of_bytes(dice, told)).decode().rstrip("=")


def read_cursor(cursor: str) -> None:
    """A list goes on from it."""
    for read in (
        lambda: DeadLetters(_local().parts).entries(QUEUE, page_size=3, cursor=cursor),
        lambda: AuditReader(_local().parts).list(QUEUE, page_size=3, cursor=cursor),
    ):
        try:
            read()
        except StaleCursor:
            continue
        return
    raise StaleCursor("neither list goes on from it")


# -- operators -------------------------------------------------------------------------------------


def parts() -> Parts:
    """What answers operators; it begins anew now and then."""
    _pass_time()
    return _local().parts


def ask(document: Any) -> None:
    """An operator's request."""
    if isinstance(document, dict):
        answer(document, _local().parts, lambda: Principal("ann"))
