"""The cost of single steps and of whole lives, in capacity units of the requests sent."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from benchmarks.capacity import Meter, Shape, write_units
from benchmarks.designs import FAILURE, OBVIOUS_TABLE, Design, Obvious, Rdq
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lifecycle import NO_EDIT
from rdq_core.engine.ports import KeyBusy
from rdq_core.stores.dynamodb.schema import STATE, Tables
from rdq_core.stores.dynamodb.values import Item, item_size

DOLLARS_PER_WRITE_UNIT: Final = 0.625e-6
DOLLARS_PER_READ_UNIT: Final = 0.125e-6
"""On demand in us-east-1, as published since 2024-11-01."""

_LARGEST_ITEM: Final = 400 * 1024
TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
BUDGETS: Final[Mapping[str, int]] = {
    "submit": 2,
    "claim": 3,
    "complete": 2,
    "heartbeat": 3,
    "release": 3,
    "reschedule": 4,
    "reclaim": 4,
    "dead-letter": 7,
    "cancel": 2,
    "redrive": 6,
    "purge": 5,
    "lost claim": 1,
    "keyed claim": 6,
    "keyed complete": 3,
    "submit with a failure": 3,
}
"""Write units of each step when every item is under 1 KB."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What something cost. `writes` is None where DynamoDB would have refused it: an item of over
    400 KB.
    """

    writes: float | None
    reads: float

    @property
    def dollars(self) -> float:
        """The price of a million."""
        return 1e6 * (
            (self.writes or 0) * DOLLARS_PER_WRITE_UNIT + self.reads * DOLLARS_PER_READ_UNIT
        )


def payload_of(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(size).randbytes(size)


def live(design: Design, payload: bytes, attempts: int, stack: str) -> None:
    """A task's whole life: it fails until the last of `attempts` succeeds."""
    design.submit(payload)
    design.look()
    for number in range(1, attempts + 1):
        design.claim()
        if number < attempts:
            design.reschedule(stack)
    design.complete()


def obvious_life(payload: bytes, attempts: int, stack: str) -> Bill:
    """The same life in the obvious design, on paper: no engine for tests holds items of 400 KB as
    DynamoDB does.
    """
    shape, units = Shape.of(OBVIOUS_TABLE), 0

    def write(before: Item | None, after: Item) -> None:
        nonlocal units
        if item_size(after) > _LARGEST_ITEM:
            raise OverflowError
        units += write_units(before, after) + shape.index_units(before, after)

    try:
        live(Obvious(write), payload, attempts, stack)
    except OverflowError:
        return Bill(None, 0)
    return Bill(units, 0)


class Bench:
    """rdq's store on an empty engine, with a meter."""

    def __init__(self, client: Any) -> None:
        self.rdq = Rdq(client, TABLES)
        self._meter = Meter(client, is_alone=True)

    def cost(self, act: Callable[[], object]) -> Bill:
        """The cost of a call."""
        self._meter.clear()
        with self._meter:
            act()
        return Bill(self._meter.write_units, self._meter.read_units)

    # -- whole lives -------------------------------------------------------------------------------

    def life(self, payload: bytes, attempts: int, stack: str) -> Bill:
        """Of a task that fails until the last of `attempts` succeeds. Queries of the index
        are left out.
        """
        self._meter.clear()
        with self._meter:
            live(self.rdq, payload, attempts, stack)
        charges = [charge for charge in self._meter.charges if charge.operation != "Query"]
        return Bill(
            sum(charge.write_units for charge in charges),
            sum(charge.read_units for charge in charges),
        )

    # -- every step --------------------------------------------------------------------------------

    def steps(self, payload: bytes, stack: str, earlier_attempts: int = 0) -> dict[str, Bill]:
        """Every step of rdq, as a task takes it that has this payload and has failed so often
        before.
        """
        rdq, cost = self.rdq, self.cost
        found = {"submit": cost(lambda: rdq.submit(payload))}
        for _ in range(earlier_attempts):
            rdq.claim()
            rdq.reschedule(stack)
        seen = rdq.look()
        found["claim"] = cost(lambda: rdq.take(seen))
        found["lost claim"] = cost(lambda: rdq.store.claim(seen, rdq.grant()))
        found["heartbeat"] = cost(
            lambda: rdq.store.heartbeat(rdq.claimed, rdq.clock.now() + timedelta(hours=1))
        )
        found["reschedule"] = cost(lambda: rdq.reschedule(stack))
        rdq.claim()
        found["release"] = cost(
            lambda: rdq.store.release(rdq.claimed, FAILURE, due_at=rdq.clock.now())
        )
        rdq.claim()
        lapsed = rdq.lapse()
        found["reclaim"] = cost(lambda: rdq.reclaim(lapsed, stack))
        found["dead-letter"] = cost(lambda: rdq.bury(stack))
        entry = rdq.entry()
        found["redrive"] = cost(lambda: self._redrive(entry))
        rdq.claim()
        found["complete"] = cost(rdq.complete)
        return found | self._other_ends(payload) | self._keyed(payload)

    def _redrive(self, entry: DeadEntry) -> None:
        rdq = self.rdq
        rdq.store.redrive(entry, NO_EDIT, now=rdq.clock.now(), op_id=f"op-{rdq.task_id}", shards=1)

    def _other_ends(self, payload: bytes) -> dict[str, Bill]:
        rdq, now = self.rdq, self.rdq.clock.now()
        rdq.submit(payload)
        ends_at = now + timedelta(days=7)
        cancelled = self.cost(
            lambda: rdq.store.cancel(rdq.task_id, now=now, op_id="op", expires_at=ends_at)
        )
        rdq.submit(payload)
        rdq.claim()
        rdq.bury(None)
        entry = rdq.entry()
        purged = self.cost(lambda: rdq.store.purge(entry, now=now, op_id="op"))
        return {"cancel": cancelled, "purge": purged}

    def _keyed(self, payload: bytes) -> dict[str, Bill]:
        rdq = self.rdq
        rdq.submit(payload, concurrency_key="customer-17")
        seen = rdq.look()

        def claim() -> None:
            claimed = rdq.store.claim_keyed(seen, rdq.grant())
            rdq.held = None if isinstance(claimed, KeyBusy) else claimed

        return {"keyed claim": self.cost(claim), "keyed complete": self.cost(rdq.complete)}

    # -- lines of their own ------------------------------------------------------------------------

    def submit_with_a_failure(self, payload: bytes, stack: str) -> Bill:
        """The cost of a submit whose call has failed once before."""
        self.rdq.submit(b"")
        self.rdq.claim()
        failed = self.rdq.attempt(stack)
        self.rdq.complete()
        return self.cost(lambda: self.rdq.submit(payload, attempts=(failed,)))

    def renewal(self, payload: bytes) -> Bill:
        """The cost of renewing the body of a task that is overdue by more than a month."""
        rdq = self.rdq
        rdq.submit(payload)
        seen = rdq.look()
        rdq.clock.advance("35d")
        renewed = self.cost(lambda: rdq.store.renew(seen, now=rdq.clock.now()))
        rdq.store.cancel(rdq.task_id, now=rdq.clock.now(), op_id="op", expires_at=rdq.clock.now())
        return renewed

    def failure(self, stack: str) -> Bill:
        """The cost of one failed attempt with this stack."""
        rdq = self.rdq
        rdq.submit(b"x" * 300)
        rdq.look()
        claimed, failed = self.cost(rdq.claim), self.cost(lambda: rdq.reschedule(stack))
        rdq.claim()
        rdq.complete()
        return Bill((claimed.writes or 0) + (failed.writes or 0), claimed.reads + failed.reads)

    def clean_up(self, stack: str, attempts: int) -> Bill:
        """The cost of the clean-up after the row of a task with failures was removed."""
        rdq = self.rdq
        rdq.submit(b"x" * 300)
        for _ in range(attempts - 1):
            rdq.claim()
            rdq.reschedule(stack)
        rdq.claim()
        rdq.complete()
        key = {"task_id": {"S": rdq.task_id}, "kind": {"S": STATE}}
        row = rdq.client.delete_item(TableName=TABLES.tasks, Key=key, ReturnValues="ALL_OLD")[
            "Attributes"
        ]
        return self.cost(
            lambda: rdq.store.clean_up({"eventName": "REMOVE", "dynamodb": {"OldImage": row}})
        )

    def poll(self) -> Bill:
        """The cost of polling one shard where nothing is due."""
        rdq = self.rdq
        return self.cost(lambda: rdq.store.candidates("idle", 0, until=rdq.clock.now(), limit=100))
