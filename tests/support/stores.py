"""rdq's stores on every engine: in memory, on the strict double, on atomic moto, and on ministack.

A test that asks for `store` or `queues` runs on all of them; `on_dynamodb` gives the two that have
requests to disturb.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from rdq_core.engine.ports import AuditLog, CursorKey, JobStore, QueueStore
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.dynamodb.audit import DynamoAudit
from rdq_core.stores.dynamodb.coordination import DynamoCursorKey
from rdq_core.stores.dynamodb.jobs import DynamoJobs
from rdq_core.stores.dynamodb.queues import DynamoQueues
from rdq_core.stores.dynamodb.schema import Tables, definitions
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.memory_control import MemoryAudit, MemoryCursorKey, MemoryJobs, MemoryQueues
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.factories import NOW
from tests.support.engines import Engine

EPOCH_OF_TESTS: Final = NOW
"""Ahead of every real clock: ministack removes what has expired by its own, in the middle of a
test.
"""
TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")

SHARDS: Final = 4

ALL_ENGINES: Final = (
    "memory",
    "double",
    "moto",
    pytest.param("ministack", marks=pytest.mark.ministack),
)


@dataclass(frozen=True, slots=True)
class Dynamo:
    """The four tables on an engine, and stores on them: as many as the test needs, each with a
    client of its own.
    """

    engine: Engine
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(EPOCH_OF_TESTS))
    tables: Tables = TABLES
    shards_ever: Callable[[str], int] = lambda _queue: SHARDS

    def store(self, client: Any = None) -> DynamoTaskStore:
        """A store, as another process would have it. Its waits move the clock."""
        return DynamoTaskStore(
            client or self.engine.dynamodb,
            self.tables,
            clock=self.clock,
            ids=SystemIds(),
            jitter=NoJitter(),
            sleeper=SkipsSleep(self.clock),
            shards_ever=self.shards_ever,
        )

    def queues(
        self,
        client: Any = None,
        *,
        fresh_for: timedelta = timedelta(0),
        submits_fresh_for: timedelta = timedelta(0),
    ) -> DynamoQueues:
        """Queue configuration, read anew each time by default."""
        return DynamoQueues(
            client or self.engine.dynamodb,
            self.tables,
            clock=self.clock,
            jitter=NoJitter(),
            sleeper=SkipsSleep(self.clock),
            fresh_for=fresh_for,
            submits_fresh_for=submits_fresh_for,
        )

    def audit(self, client: Any = None) -> DynamoAudit:
        """The audit log."""
        return DynamoAudit(
            client or self.engine.dynamodb,
            self.tables,
            jitter=NoJitter(),
            sleeper=SkipsSleep(self.clock),
        )

    def jobs(self, client: Any = None) -> DynamoJobs:
        """Bulk operations."""
        return DynamoJobs(client or self.engine.dynamodb, self.tables, **self._outside())

    def cursor_key(self, client: Any = None) -> DynamoCursorKey:
        """The key of page cursors."""
        return DynamoCursorKey(client or self.engine.dynamodb, self.tables, **self._outside())

    def _outside(self) -> dict[str, Any]:
        return {"ids": SystemIds(), "jitter": NoJitter(), "sleeper": SkipsSleep(self.clock)}

    def items_of(self, task_id: str, client: Any = None) -> dict[str, Any]:
        """All that is stored under a task's id, by its kind."""
        client = client or self.engine.dynamodb
        found: dict[str, Any] = {}
        for table in (self.tables.tasks, self.tables.dlq):
            answer = client.query(
                TableName=table,
                KeyConditionExpression="#task_id = :id",
                ExpressionAttributeNames={"#task_id": "task_id"},
                ExpressionAttributeValues={":id": {"S": task_id}},
                ConsistentRead=True,
            )
            found |= {item["kind"]["S"]: item for item in answer["Items"]}
        return found


def dynamo_on(engine: Engine) -> Dynamo:
    """The tables, made on an empty engine: without TTL, for which every engine has a clock of its
    own.
    """
    client = engine.dynamodb
    for definition in definitions(TABLES).values():
        client.create_table(**definition)
    return Dynamo(engine)


@pytest.fixture
def on_dynamodb(engine: Engine) -> Dynamo:
    """Empty tables on each engine in turn."""
    return dynamo_on(engine)


@pytest.fixture(params=ALL_ENGINES)
def queues(request: pytest.FixtureRequest) -> QueueStore:
    """No queue at all, in each store in turn."""
    if request.param == "memory":
        return MemoryQueues(clock=FrozenClock(EPOCH_OF_TESTS))
    return dynamo_on(request.getfixturevalue(request.param)).queues()


@pytest.fixture(params=ALL_ENGINES)
def audit(request: pytest.FixtureRequest) -> AuditLog:
    """An empty audit log, in each store in turn."""
    if request.param == "memory":
        return MemoryAudit()
    return dynamo_on(request.getfixturevalue(request.param)).audit()


@pytest.fixture(params=ALL_ENGINES)
def jobs(request: pytest.FixtureRequest) -> JobStore:
    """No job at all, in each store in turn."""
    if request.param == "memory":
        return MemoryJobs()
    return dynamo_on(request.getfixturevalue(request.param)).jobs()


@pytest.fixture(params=ALL_ENGINES)
def cursor_keys(request: pytest.FixtureRequest) -> Callable[[], CursorKey]:
    """What makes the cursor key's store anew, as each process does, in each store in turn."""
    if request.param == "memory":
        kept = MemoryCursorKey(SystemIds().token().encode())
        return lambda: kept
    return dynamo_on(request.getfixturevalue(request.param)).cursor_key
