"""The two designs that the benchmarks compare: rdq's store and the obvious one."""

import itertools
import json
import sys
import traceback
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.engine.ports import Candidate
from rdq_core.runtime.system import SystemIds, SystemSleeper
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.dynamodb.values import Item
from rdq_core.testing.clock import FrozenClock, NoJitter

QUEUE: Final = "payments.charge"
HANDLER: Final = "charge-payment"
HEADERS: Final = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
LEASE: Final = timedelta(minutes=5)
KEPT: Final = timedelta(days=7)
FAILURE: Final = Failure(
    "task_failed", "urllib.error.URLError", "<urlopen error [Errno 111] Connection refused>"
)
_STARTS_AT: Final = datetime.fromisoformat("2026-07-20T12:00:00+00:00")


class Design(Protocol):
    """One task at a time, through its whole life."""

    def submit(self, payload: bytes) -> None: ...
    def look(self) -> object: ...
    def claim(self) -> None: ...
    def reschedule(self, stack: str) -> None: ...
    def complete(self) -> None: ...


class Rdq:
    """rdq's own store. `shards` is 1, so that there is one place to look."""

    def __init__(self, client: Any, tables: Tables) -> None:
        create_tables(client, tables)
        self.client = client
        self.clock = FrozenClock(_STARTS_AT)
        self.store = DynamoTaskStore(
            client,
            tables,
            clock=self.clock,
            ids=SystemIds(),
            jitter=NoJitter(),
            sleeper=SystemSleeper(),
            shards_ever=lambda _: 1,
        )
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)
        self._seen: Candidate | None = None
        self.held: Claim | None = None
        self.task_id = ""

    def submit(self, payload: bytes, **fields: Any) -> None:
        self.task_id, self._seen = encode_id(next(self._ids)), None
        task = Task(
            id=self.task_id,
            queue=QUEUE,
            handler_ref=HANDLER,
            payload=payload,
            headers=HEADERS,
            created_at=self.clock.now(),
            **fields,
        )
        self.store.submit(task, shards=1)

    def look(self) -> Candidate:
        """What the index says of the task: not a part of any step's cost, because a page of it
        serves many tasks.
        """
        if self._seen is not None:
            return self._seen
        until = self.clock.now() + timedelta(days=365)
        page = self.store.candidates(QUEUE, 0, until=until, limit=100)
        self._seen = next(each for each in page.items if each.task_id == self.task_id)
        return self._seen

    def grant(self) -> Grant:
        now = self.clock.now()
        return Grant(
            token=f"token-{next(self._tokens):016d}", now=now, lease_expires_at=now + LEASE
        )

    def claim(self) -> None:
        """Claim the task, and load what its handler needs."""
        self.take(self.look())
        self.store.load(self.claimed)

    def take(self, seen: Candidate) -> None:
        self.held, self._seen = self.store.claim(seen, self.grant()), None

    def lapse(self) -> Claim:
        self.clock.advance("1h")
        lapsed = self.store.lapsed(self.look(), now=self.clock.now())
        if lapsed is None:
            raise LookupError("the lease has not lapsed")
        self._seen = None
        return lapsed

    def reclaim(self, lapsed: Claim, stack: str) -> None:
        self.held = lapsed
        self.held = self.store.reclaim(lapsed, self.attempt(stack), self.grant())

    @property
    def claimed(self) -> Claim:
        if self.held is None:
            raise LookupError("the claim was lost")
        return self.held

    def reschedule(self, stack: str) -> None:
        due_at = self.clock.now()
        self.store.reschedule(self.claimed, self.attempt(stack), FAILURE, due_at=due_at)
        self._seen = Candidate(
            task_id=self.task_id,
            queue=QUEUE,
            due_at=due_at,
            status=Status.PENDING,
            fencing_token=self.claimed.fencing_token,
            handler_ref=HANDLER,
        )

    def complete(self) -> None:
        now = self.clock.now()
        result = Result(content=b'{"ok":true}', content_type="application/json")
        self.store.complete(
            self.claimed, self.attempt(None), result, now=now, expires_at=now + KEPT
        )

    def bury(self, stack: str | None) -> None:
        now = self.clock.now()
        attempt = None if stack is None else self.attempt(stack)
        self.store.dead_letter(
            self.claimed,
            attempt,
            FAILURE,
            now=now,
            fingerprint="v1:0123456789ab",
            expires_at=now + KEPT,
        )

    def entry(self) -> DeadEntry:
        entry = self.store.dead_entry(self.task_id)
        if entry is None:
            raise LookupError("the task is not dead")
        return entry

    def attempt(self, stack: str | None) -> Attempt:
        claim = self.claimed
        error = None if stack is None else an_error(stack)
        return Attempt(
            attempt_no=claim.attempt_no,
            started_at=claim.claimed_at,
            finished_at=self.clock.now(),
            outcome=Outcome.SUCCESS if error is None else Outcome.RETRYABLE_FAILURE,
            error=error,
            worker="lambda:rdq-sweeper/7f3c1a52-0b9e-4c55-9d0e-2f6f6f0d2c11",
            fencing_token=claim.fencing_token,
        )


class Obvious:
    """A status index, and everything in one item. Its index holds keys alone, which is as cheap as
    it gets.

    `write` carries a change out: the item before, and how it shall be.
    """

    def __init__(self, write: Callable[[Item | None, Item], None]) -> None:
        self._write = write
        self._ids = itertools.count(1)
        self._now = 1_784_548_800_000
        self._item: Item = {}

    def look(self) -> None:
        """The claim returned the task already, so nothing is read."""

    def submit(self, payload: bytes) -> None:
        self._item = obvious_item(encode_id(next(self._ids)), payload, self._now)
        self._write(None, self._item)

    def claim(self) -> None:
        self._change("IN_FLIGHT", claim_token={"S": "t" * 22})

    def reschedule(self, stack: str) -> None:
        attempt = {
            "outcome": "RETRYABLE_FAILURE",
            "started_at": self._now,
            "finished_at": self._now,
            "type": FAILURE.type,
            "message": FAILURE.message,
            "stack": stack,
        }
        attempts = [*self._item["attempts"]["L"], {"S": json.dumps(attempt)}]
        self._change("PENDING", attempts={"L": attempts})

    def complete(self) -> None:
        self._change("SUCCEEDED", result={"S": '{"ok":true}'})

    def _change(self, status: str, **values: Any) -> None:
        self._now += 1000
        before = self._item
        self._item = {**before, "status": {"S": status}, "due_at": {"N": str(self._now)}, **values}
        self._write(before, self._item)


def obvious_item(task_id: str, payload: bytes, now: int) -> dict[str, Any]:
    """A task of the obvious design."""
    return {
        "task_id": {"S": task_id},
        "queue": {"S": QUEUE},
        "handler_ref": {"S": HANDLER},
        "status": {"S": "PENDING"},
        "due_at": {"N": str(now)},
        "created_at": {"N": str(now)},
        "payload": {"B": payload},
        "headers": {"M": {name: {"S": value} for name, value in HEADERS.items()}},
        "attempts": {"L": []},
    }


OBVIOUS_TABLE: Final[Mapping[str, Any]] = {
    "TableName": "obvious",
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "task_id", "KeyType": "HASH"}],
    "AttributeDefinitions": [
        {"AttributeName": name, "AttributeType": kind}
        for name, kind in (("task_id", "S"), ("status", "S"), ("due_at", "N"))
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "status",
            "KeySchema": [
                {"AttributeName": "status", "KeyType": "HASH"},
                {"AttributeName": "due_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
}
"""CreateTable's arguments for the obvious design's one table."""


def an_error(stack: str) -> AttemptError:
    return AttemptError(
        type=FAILURE.type or "", message=FAILURE.message, code="task_failed", stack=stack
    )


def real_stack(refusals: int) -> str:
    """A stack as Python prints it: of one refused connection (3 KB), or of a second while handling
    the first (6 KB).
    """
    try:
        _fail(refusals)
    except OSError:
        return "".join(traceback.format_exception(*sys.exc_info()))
    raise RuntimeError(f"somebody listens on port {_PORT}")


def _fail(refusals: int) -> None:
    if refusals:
        try:
            _fail(refusals - 1)
        finally:
            _REFUSED[refusals - 1]()


_PORT: Final = 1
_REFUSED: Final[tuple[Callable[[], object], ...]] = (
    lambda: urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/charge", timeout=1),
    lambda: xmlrpc.client.ServerProxy(f"http://127.0.0.1:{_PORT}").charge(17),
)
