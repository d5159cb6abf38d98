"""Tables in which any item may be edited by hand, written by a newer rdq, or torn: every verb meets
every item.
"""

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from typing import Any, Final

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import last_id
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Edit, Result
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.engine.ports import TaskStore
from rdq_core.errors import LeaseLost
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.dynamodb import bodies
from rdq_core.stores.dynamodb.audit import DynamoAudit
from rdq_core.stores.dynamodb.coordination import DynamoRateLimiter
from rdq_core.stores.dynamodb.dead_letters import read_entry
from rdq_core.stores.dynamodb.history import read_record
from rdq_core.stores.dynamodb.queues import DynamoQueues, read_queue
from rdq_core.stores.dynamodb.schema import Attr, Tables, definitions
from rdq_core.stores.dynamodb.state_row import read_inline, read_row
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.dynamodb.values import Reader
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.contract.factories import (
    a_failed,
    a_failure,
    a_grant,
    a_task,
    an_error,
    noise,
)
from tests.fuzzing.mutation import of_item, of_text
from tests.support.fake_dynamodb import Database, FakeClient

QUEUE: Final = "billing"
_TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
_ORDER: Final = Reference(ReferenceKind.TARGET, "order:1")
Place = tuple[str, tuple[str, str]]


class Shelf:
    """One task in each state and one item of each kind, and every verb, made ready before anything
    is torn.
    """

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.database = Database(now=lambda: self.clock.now().timestamp())
        for definition in definitions(_TABLES).values():
            self.database.create_table(**definition)
        client: Any = FakeClient(self.database)
        world: Any = {"jitter": NoJitter(), "sleeper": SkipsSleep(FrozenClock())}
        self.store = DynamoTaskStore(
            client,
            _TABLES,
            clock=self.clock,
            ids=SystemIds(),
            shards_ever=lambda _queue: 1,
            **world,
        )
        self.memory = MemoryStore(clock=self.clock, ids=SystemIds())
        self.queues = DynamoQueues(
            client, _TABLES, clock=self.clock, fresh_for=timedelta(0), **world
        )
        self.limiter = DynamoRateLimiter(client, _TABLES, ids=SystemIds(), **world)
        self.audit = DynamoAudit(client, _TABLES, **world)
        self.ids: dict[str, str] = {}
        self.claims: list[Claim] = []
        self.entries: list[DeadEntry] = []
        for store in self.stores():
            self._fill(Bench(store, self.clock, raw=lambda _: None))
        self._fill_control()
        self._whole = pickle.dumps(self.database.tables)

    def stores(self) -> Sequence[TaskStore]:
        """DynamoDB's, and the reference."""
        return self.store, self.memory

    def _fill(self, bench: Bench) -> None:
        large = {"payload": noise(3000), "target": _ORDER.value, "headers": {"a": "b"}}
        self.ids["waiting"] = bench.submit(**large).id
        self.ids["easily packed"] = bench.submit(**{**large, "payload": b"spam " * 2000}).id
        self.ids["done"] = bench.succeeded(payload=noise(2000)).id
        self.ids["keyed"] = bench.submit(concurrency_key="customer-5").id
        held = bench.claimed(**large)
        failed = bench.claimed()
        bench.reschedule(failed, error=an_error(stack="Traceback ..." * 60, detail={"status": 504}))
        again = bench.claim(failed.task.id)
        self.ids |= {"held": held.task.id, "failed": failed.task.id}
        dead = [bench.dead(payload=noise(3000), target=_ORDER.value).id for _ in range(3)]
        self.ids["dead"] = dead[0]
        self.claims = [held, again]
        self.entries = [bench.entry(task_id) for task_id in dead]

    def _fill_control(self) -> None:
        declared = {"retry": {"max_attempts": 3}, "dispatch": {"rate_limit": "5/s"}}
        self.queues.put_declared(QUEUE, declared, {}, expected_revision=0)
        self.queues.pause(QUEUE, paused=True, now=self.clock.now(), reason="a bank holiday")
        limit = self.queues.settings(QUEUE).dispatch.claim_limit
        assert limit is not None
        self.limit = limit
        self.limiter.take(QUEUE, 1, limit, now=self.clock.now())
        self.store.forget(Reference(ReferenceKind.TARGET, "order:2"), now=self.clock.now())
        auditor = Auditor(self.audit, Principal("ann"), clock=self.clock, ids=SystemIds())
        with auditor.recorded("queue.pause", QUEUE, detail={"a": 1}) as result:
            result["b"] = 2

    def mended(self) -> "Shelf":
        """Everything as it was at first."""
        self.database.tables = pickle.loads(self._whole)
        return self

    def tables(self) -> dict[str, list[Any]]:
        """All that is stored."""
        return {name: list(table.every()) for name, table in self.database.tables.items()}

    def places(self) -> list[Place]:
        """Where there are items."""
        tables = self.database.tables.items()
        return [(name, table.key_of(item)) for name, table in tables for item in table.every()]

    # -- every verb --------------------------------------------------------------------------------

    def verbs(self) -> Iterator[Callable[[], object]]:
        """Calls that meet one or another of the items."""
        store, now = self.store, self.clock.now()
        later = now + timedelta(hours=1)
        for task_id in self.ids.values():
            yield partial(store.get, task_id)
            yield partial(store.dead_entry, task_id)
            yield partial(store.cancel, task_id, now=now, op_id="op", expires_at=later)
            yield partial(store.submit, a_task(id=task_id, target=_ORDER.value), shards=1)
        for claim in self.claims:
            yield from self._settling(claim)
        edit = Edit(payload=b"edited")
        for entry in self.entries:
            yield partial(store.redrive, entry, edit, now=now, op_id="op", shards=1)
            yield partial(store.purge, entry, now=now, op_id="op")
        yield from self._looking(later)
        yield lambda: store.forget(_ORDER, now=now)
        yield self.queues.all
        yield lambda: self.queues.settings(QUEUE)
        yield self.queues.all_stored
        yield lambda: self.limiter.take(QUEUE, 3, self.limit, now=later)
        yield lambda: self.audit.records(
            QUEUE, since=now - timedelta(days=1), before=last_id(later), limit=10
        )

    def _settling(self, claim: Claim) -> Iterator[Callable[[], object]]:
        store, now = self.store, self.clock.now()
        attempt, end = a_failed(claim, now), now + timedelta(days=1)
        yield lambda: store.load(claim)
        yield lambda: store.heartbeat(claim, end)
        yield lambda: store.complete(
            claim, attempt, Result(content=b"done"), now=now, expires_at=end
        )
        yield lambda: store.reschedule(claim, attempt, a_failure(attempt), due_at=end)
        yield lambda: store.release(claim, a_failure(), due_at=now)
        yield lambda: store.dead_letter(
            claim, attempt, a_failure(attempt), now=now, fingerprint="v1:1", expires_at=None
        )

    def _looking(self, until: Any) -> Iterator[Callable[[], object]]:
        store = self.store
        yield lambda: store.counts(QUEUE)
        yield lambda: store.dead(QUEUE, limit=10)
        yield lambda: self._take_all(until)

    def _take_all(self, until: Any) -> None:
        """What a sweep does with all that an index proposes. The first refusal is told, and no
        other is in the way.
        """
        refused: Exception | None = None
        for candidate in self.store.candidates(QUEUE, 0, until=until, limit=50).items:
            try:
                if candidate.status == "PENDING":
                    claims = (
                        self.store.claim_keyed if candidate.concurrency_key else self.store.claim
                    )
                    claims(candidate, a_grant(until))
                else:
                    self.store.lapsed(candidate, now=until)
                self.store.renew(candidate, now=until)
            except Exception as error:  # noqa: BLE001 - whoever called looks at it
                refused = error
        if refused is not None:
            raise refused


@cache
def shelf() -> Shelf:
    """The one of this process."""
    return Shelf()


def throw_item(dice: random.Random) -> tuple[Place, Any, int]:
    """One item, torn, and the number of the verb that meets it."""
    place = dice.choice(_places())
    item = shelf().database.tables[place[0]].get(place[1])
    return place, of_item(dice, item or {}), dice.randrange(_verbs())


@cache
def _places() -> list[Place]:
    return shelf().mended().places()


@cache
def _verbs() -> int:
    return len(list(shelf().verbs()))


def work_with(thrown: tuple[Place, Any, int]) -> None:
    """Put it into its table, and do what the number says."""
    (table, key), item, number = thrown
    _put(table, key, item)
    try:
        list(shelf().verbs())[number]()
    finally:
        shelf().mended()


def _put(table: str, key: tuple[str, str], item: Any) -> None:
    at = shelf().clock.now().timestamp()
    keys = {index.partition: "S" for index in shelf().database.tables[table].indexes.values()}
    keys |= {index.sort: "N" for index in shelf().database.tables[table].indexes.values()}
    # DynamoDB refuses an item whose index keys are of another type.
    kept = {name: value for name, value in item.items() if name not in keys or keys[name] in value}
    shelf().database.tables[table].put(key, kept, at)


def throw_any_item(dice: random.Random) -> tuple[str, Any]:
    """One item, torn, and what it was once."""
    table, key = dice.choice(_places())
    return key[1], of_item(dice, shelf().database.tables[table].get(key) or {})


def read_item(thrown: tuple[str, Any]) -> None:
    """The reader of its kind reads all of it."""
    kind, item = thrown
    reader = Reader(item, "an item")
    match kind.partition("#")[0]:
        case "T":
            row = read_row(item)
            assert row.success is None or row.success.attempt_no == row.history_length + 1
            read_inline(reader)
        case "A":
            read_record(item)
        case "D":
            read_entry(item)
        case "B" | "R":
            bodies.read_body(reader)
            bodies.unpacked(reader, Attr.RESULT)
        case _:
            read_queue({"sk": {"S": QUEUE}, **item})


# -- the stream ------------------------------------------------------------------------------------


def throw_record(dice: random.Random) -> Any:
    """A record of a row that was removed or replaced, of which nothing need be true."""
    place = dice.choice(_places())
    old = of_item(dice, shelf().database.tables[place[0]].get(place[1]) or {})
    new = dice.choice((None, {}, of_item(dice, old)))
    record = {"dynamodb": {"OldImage": old, "NewImage": new}}
    return dice.choice((record, record, record, {"dynamodb": {}}, {}))


def clean_up(record: Any) -> None:
    """Whoever reads the stream gets it, and no live task loses anything by it."""
    before = [shelf().store.get(task_id) for task_id in shelf().ids.values()]
    try:
        shelf().store.clean_up(record)
        assert [shelf().store.get(task_id) for task_id in shelf().ids.values()] == before
    finally:
        shelf().mended()


# -- tokens ----------------------------------------------------------------------------------------


def throw_token(dice: random.Random) -> str:
    """A claim token that is nearly right."""
    token = of_text(dice, shelf().claims[0].token)
    return token if token != shelf().claims[0].token else token + "x"


def settle_under(token: str) -> None:
    """Every verb of a holder refuses it, and changes nothing."""
    claim = replace(shelf().claims[0], token=token)
    before = shelf().tables()
    try:
        for verb in list(shelf()._settling(claim))[1:]:
            _expect_lost(verb)
        assert shelf().tables() == before, "a refused verb leaves a trace"
    finally:
        shelf().mended()


def _expect_lost(verb: Callable[[], object]) -> None:
    try:
        verb()
    except LeaseLost:
        return
    raise AssertionError("a token that nobody was given is taken")
