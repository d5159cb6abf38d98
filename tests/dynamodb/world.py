"""What the tests of the DynamoDB store have in common: a store, its clock and client, and words for
usual steps.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.task import Failure, Task
from rdq_core.domain.times import EPOCH
from rdq_core.engine.ports import Candidate
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from tests.support.engines import Engine

TABLES = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
QUEUE = "payments.charge"
SHARDS = 4
LEASE = timedelta(seconds=60)
FAILURE = Failure("task_failed", "TimeoutError", "no answer")
TASK_ID = encode_id(7)


class CountedIds:
    """Names that nobody else has in this process, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count(1)

    def task_id(self) -> str:
        return encode_id(next(self._numbers))

    def token(self) -> str:
        return f"token-{next(self._numbers):016d}"

    def nonce(self) -> str:
        return f"n{next(self._numbers):011d}"


@cache
def _moto_client(engine: Engine) -> Any:
    """One client for all tests in this process: making one, and its tables, takes longer than most
    tests.
    """
    return engine.dynamodb


class World:
    """One engine with rdq's tables, and a store on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.client: Any = _moto_client(engine) if engine.name == "moto" else engine.dynamodb
        try:
            self.again()
        except self.client.exceptions.ResourceNotFoundException:
            create_tables(self.client, TABLES)
            self.again()

    def again(self) -> "World":
        """The same engine with empty tables, and everything else as it was at the beginning."""
        for table in (TABLES.tasks, TABLES.dlq):
            for task_id, kind in self.items(table):
                self.client.delete_item(
                    TableName=table, Key={"task_id": {"S": task_id}, "kind": {"S": kind}}
                )
        for item in self.control():
            self.client.delete_item(
                TableName=TABLES.control, Key={"pk": item["pk"], "sk": item["sk"]}
            )
        self.clock, self.ids = FrozenClock(), CountedIds()
        self.sleeper = SkipsSleep(FrozenClock())
        self.store = self.store_on(self.client)
        return self

    def store_on(self, client: Any, **options: Any) -> DynamoTaskStore:
        return DynamoTaskStore(
            client,
            TABLES,
            clock=self.clock,
            ids=self.ids,
            jitter=NoJitter(),
            sleeper=self.sleeper,
            shards_ever=lambda _: SHARDS,
            **options,
        )

    @property
    def now(self) -> datetime:
        return self.clock.now()

    # -- steps -------------------------------------------------------------------------------------

    def submit(self, task_id: str = TASK_ID, **fields: Any) -> Task:
        task = a_task(task_id, created_at=self.now, **fields)
        return self.store.submit(task, shards=SHARDS).task

    def due(self, until: datetime | None = None, queue: str = QUEUE) -> list[Candidate]:
        found: list[Candidate] = []
        for shard in range(SHARDS):
            found.extend(
                self.store.candidates(queue, shard, until=until or self.now, limit=100).items
            )
        return found

    def candidate(self, task_id: str = TASK_ID, until: datetime | None = None) -> Candidate:
        return next(each for each in self.due(until) if each.task_id == task_id)

    def grant(self, token: str | None = None, lease: timedelta = LEASE) -> Grant:
        return Grant(
            token=token or self.ids.token(), now=self.now, lease_expires_at=self.now + lease
        )

    def claim(self, task_id: str = TASK_ID) -> Claim:
        claim = self.store.claim(self.candidate(task_id), self.grant())
        assert claim is not None
        return claim

    def claimed(self, task_id: str = TASK_ID, **fields: Any) -> Claim:
        self.submit(task_id, **fields)
        return self.claim(task_id)

    def lapse(self, task_id: str = TASK_ID) -> Claim:
        self.clock.advance(LEASE)
        lapsed = self.store.lapsed(self.candidate(task_id), now=self.now)
        assert lapsed is not None
        return lapsed

    def dead(
        self, task_id: str = TASK_ID, expires_at: datetime | None = None, **fields: Any
    ) -> Claim:
        claim = self.claimed(task_id, **fields)
        self.bury(claim, expires_at=expires_at)
        return claim

    def bury(self, claim: Claim, store: DynamoTaskStore | None = None, **kwargs: Any) -> None:
        given = {"now": self.now, "fingerprint": "v1:abc", "expires_at": None, **kwargs}
        (store or self.store).dead_letter(claim, self.failed(claim), FAILURE, **given)

    def failed(self, claim: Claim, **fields: Any) -> Attempt:
        return replace(
            a_failed_attempt(claim.attempt_no, claim.claimed_at, claim.fencing_token), **fields
        )

    def lost(self, claim: Claim) -> Attempt:
        error = AttemptError(
            type="rdq.LeaseExpired", code="task_lease_expired", message="its lease lapsed"
        )
        return self.failed(claim, outcome=Outcome.LEASE_EXPIRED, finished_at=None, error=error)

    def succeeded(self, claim: Claim, **fields: Any) -> Attempt:
        return self.failed(claim, **{"outcome": Outcome.SUCCESS, "error": None, **fields})

    def got(self, task_id: str = TASK_ID) -> Task:
        task = self.store.get(task_id)
        assert task is not None
        return task

    # -- what is stored ----------------------------------------------------------------------------

    def items(self, table: str) -> dict[tuple[str, str], Any]:
        pages = self.client.get_paginator("scan").paginate(TableName=table)
        return {
            (item["task_id"]["S"], item["kind"]["S"]): item
            for page in pages
            for item in page["Items"]
        }

    def control(self) -> list[Any]:
        pages = self.client.get_paginator("scan").paginate(TableName=TABLES.control)
        return [item for page in pages for item in page["Items"]]

    def row(self, task_id: str = TASK_ID) -> Any:
        return self.items(TABLES.tasks)[task_id, "T"]

    def kinds(self, task_id: str = TASK_ID) -> list[str]:
        every = {**self.items(TABLES.tasks), **self.items(TABLES.dlq)}
        return sorted(kind for owner, kind in every if owner == task_id)

    def everything(self) -> dict[str, Any]:
        return {table: self.items(table) for table in (TABLES.tasks, TABLES.dlq)}


def a_task(task_id: str = TASK_ID, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "queue": QUEUE,
        "handler_ref": "charge-payment",
        "created_at": EPOCH,
        **fields,
    }
    return Task(id=task_id, **given)


def a_failed_attempt(attempt_no: int, started_at: datetime, fencing_token: int | None) -> Attempt:
    return Attempt(
        attempt_no=attempt_no,
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=1),
        outcome=Outcome.RETRYABLE_FAILURE,
        error=AttemptError(
            type="TimeoutError", message="no answer", code="task_failed", stack="a frame"
        ),
        worker="host:1",
        fencing_token=fencing_token,
    )
