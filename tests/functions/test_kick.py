"""The kick function: which records start a sweep, and that no row is ever left to nobody."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import to_millis
from rdq_core.engine.events import EventName
from rdq_core.engine.ports import Candidate, Page
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed
from rdq_core.runtime.kicking import KickFunction
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.stores.memory import MemoryStore
from rdq_core.stores.memory_control import MemoryReservations
from tests.engine.world import QUEUE
from tests.functions.stage import ARN, Stage
from tests.support.events import event
from tests.support.functions import refused

LIMITS = SweepLimits(horizon=timedelta(seconds=5))


def image(
    due_at: datetime, *, status: str = "PENDING", queue: str = QUEUE, kind: str = "T"
) -> dict[str, Any]:
    (record,) = event("dynamodb_stream")["Records"]
    row: dict[str, Any] = record["dynamodb"]["NewImage"]
    changes = {"status": {"S": status}, "queue_shard": {"S": f"{queue}#00"}, "kind": {"S": kind}}
    return row | changes | {"due_at": {"N": str(to_millis(due_at))}}


def record(new: dict[str, Any] | None, old: dict[str, Any] | None = None) -> dict[str, Any]:
    (told,) = event("dynamodb_stream")["Records"]
    images = {"NewImage": new, "OldImage": old}
    told["dynamodb"] |= images
    told["dynamodb"] = {
        name: value for name, value in told["dynamodb"].items() if value is not None
    }
    return dict(told)


class Kicked(Stage):
    """A stage with the kick function's host; `started` are the sweeps that it starts."""

    def kick(self, *records: dict[str, Any]) -> list[str]:
        return KickFunction(self.host).kick({"Records": list(records)})

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    def new(self, seconds: float = 0, **fields: Any) -> dict[str, Any]:
        return record(image(self.now + timedelta(seconds=seconds), **fields))


# -- the filter ------------------------------------------------------------------------------------


def test_a_new_row_starts_a_sweep_of_its_queue() -> None:
    stage = Kicked()
    assert stage.kick(stage.new()) == [QUEUE]
    assert stage.started.events == [(ARN, {"queues": [QUEUE]})]


@pytest.mark.parametrize("status", ["IN_FLIGHT", "DEAD", "SUCCEEDED"])
def test_a_row_that_turns_pending_starts_a_sweep(status: str) -> None:
    stage = Kicked()
    stage.kick(record(image(stage.now), image(stage.now, status=status)))
    assert len(stage.started.events) == 1


def test_work_of_several_queues_starts_one_sweep() -> None:
    stage = Kicked()
    stage.world.configure("mail", handlers={"charge": {"function": "mail-fn"}})
    stage.kick(stage.new(), stage.new(queue="mail"), stage.new())
    assert stage.started.events == [(ARN, {"queues": [QUEUE, "mail"]})]


IRRELEVANT: dict[str, Callable[[Kicked], dict[str, Any]]] = {
    "a claim": lambda stage: record(image(stage.now, status="IN_FLIGHT"), image(stage.now)),
    "an end": lambda stage: record(
        image(stage.now, status="SUCCEEDED"), image(stage.now, status="IN_FLIGHT")
    ),
    "a removal": lambda stage: record(None, image(stage.now)),
    "a body": lambda stage: stage.new(kind="B#1"),
    "work that is due in two minutes": lambda stage: stage.new(seconds=120),
    "a renewal of a waiting row": lambda stage: record(image(stage.now), image(stage.now)),
    "an unknown queue": lambda stage: stage.new(queue="unknown"),
    "a queue of workers": lambda stage: stage.new(queue="workers"),
    "a queue for any host that names no functions": lambda stage: stage.new(queue="shared"),
    "a paused queue": lambda stage: stage.new(queue="paused"),
    "a row without a due time": lambda _stage: record(
        {"kind": {"S": "T"}, "status": {"S": "PENDING"}}
    ),
    "a record of nothing": lambda _stage: {"eventName": "INSERT"},
}


@pytest.mark.parametrize("variable", [{}, {"RDQ_SWEEPER_FUNCTION": ""}])
def test_a_kick_that_knows_no_sweeper_says_which_variable_is_missing(
    variable: dict[str, str],
) -> None:
    stage = Kicked()
    stage.host = replace(stage.host, environ=variable)
    with pytest.raises(ConfigInvalid, match="RDQ_SWEEPER_FUNCTION"):
        stage.kick(stage.new())
    assert stage.world.reservations.acquire(QUEUE, now=stage.now, until=stage.now)


@pytest.mark.parametrize("name", IRRELEVANT)
def test_nothing_else_does(name: str) -> None:
    stage = Kicked()
    stage.world.configure("workers")
    stage.world.configure("shared", dispatch={"host": "any"})
    stage.world.configure("paused", handlers={"charge": {"function": "f"}})
    stage.world.queues.pause("paused", paused=True, now=stage.now)
    assert stage.kick(IRRELEVANT[name](stage)) == []
    assert stage.started.events == []


def test_while_a_sweep_is_announced_or_was_just_started_none_is_started() -> None:
    stage = Kicked()
    stage.kick(stage.new())
    stage.world.clock.advance("1s")
    stage.kick(stage.new())
    stage.world.reservations.extend(QUEUE, until=stage.now + timedelta(seconds=5))
    stage.world.clock.advance("4s")
    stage.kick(stage.new())
    assert len(stage.started.events) == 1
    stage.world.clock.advance("1s")
    stage.kick(stage.new())
    assert len(stage.started.events) == 2


def test_a_start_that_is_refused_is_taken_back_and_fails_the_batch() -> None:
    stage = Kicked()
    stage.started.error = refused("TooManyRequestsException")
    with pytest.raises(type(stage.started.error)):
        stage.kick(stage.new())
    stage.started.error = None
    assert stage.kick(stage.new()) == [QUEUE]


class LosesAnswers(MemoryReservations):
    """Books, and can't say so; `taking_back` fails as well, or doesn't."""

    def __init__(self, *, taking_back: bool) -> None:
        super().__init__()
        self.fails = True
        self._taking_back = taking_back

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        is_booked = super().acquire(queue, now=now, until=until)
        self._fail(may_have_happened=True)
        return is_booked

    def release(self, queue: str) -> None:
        if self._taking_back:
            self._fail(may_have_happened=False)
        super().release(queue)

    def _fail(self, *, may_have_happened: bool) -> None:
        if self.fails:
            raise StoreFailed("nobody has answered", may_have_happened=may_have_happened)


@pytest.mark.parametrize("taking_back", [False, True])
def test_a_batch_that_fails_leaves_no_booking_to_its_next_delivery(taking_back: bool) -> None:
    reservations, stage = LosesAnswers(taking_back=taking_back), Kicked()
    stage.host = replace(stage.host, parts=replace(stage.host.parts, reservations=reservations))
    with pytest.raises(StoreFailed):
        stage.kick(stage.new())
    reservations.fails = False
    assert stage.kick(stage.new()) == [QUEUE]


def test_the_same_records_again_and_late_start_no_more_than_one_sweep_in_two_seconds() -> None:
    stage = Kicked()
    records = [stage.new(), stage.new(seconds=1)]
    for _ in range(10):
        stage.kick(*records)
        stage.world.clock.advance("200ms")
    assert len(stage.started.events) == 1


def test_cleaning_up_gives_each_record_to_the_store() -> None:
    stage, seen = Kicked(), []

    class Sees(MemoryStore):
        def clean_up(self, record: Any) -> None:
            seen.append(record)

    parts = replace(stage.world.parts, store=Sees(clock=stage.world.clock, ids=stage.world.ids))
    records = [record(None, image(stage.now)), stage.new()]
    KickFunction(replace(stage.host, parts=parts)).clean_up({"Records": records})
    assert seen == records


def dead(stage: Kicked, life: str = "nonce-1") -> dict[str, Any]:
    return image(stage.now, status="DEAD") | {"lf": {"S": life}, "f": {"S": "card_expired"}}


BY_TTL = {
    "eventName": "REMOVE",
    "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
}
UNEXPIRED: dict[str, Callable[[Kicked], dict[str, Any]]] = {
    "removed by somebody": lambda stage: record(None, dead(stage)) | {"eventName": "REMOVE"},
    "sent back": lambda stage: record(image(stage.now), dead(stage)),
    "a success that has expired": lambda stage: (
        record(None, image(stage.now, status="SUCCEEDED")) | BY_TTL
    ),
    "a body that has expired": lambda stage: (
        record(None, dead(stage) | {"kind": {"S": "B#1"}}) | BY_TTL
    ),
}


def test_a_dead_task_whose_retention_has_ended_emits_an_event() -> None:
    stage = Kicked()
    removed = record(None, dead(stage)) | BY_TTL
    replaced = record(image(stage.now) | {"lf": {"S": "nonce-2"}}, dead(stage))
    KickFunction(stage.host).clean_up({"Records": [removed, replaced]})
    told = stage.world.told.events
    assert [(each.name, each.queue, each.handler_ref, each.code) for each in told] == [
        (EventName.DEAD_EXPIRED, QUEUE, "charge", "card_expired")
    ] * 2
    assert {each.task_id for each in told} == {"01ARZ3NDEKTSV4RRFFQ69G5FAV"}


@pytest.mark.parametrize("name", UNEXPIRED)
def test_nothing_else_emits_an_expiry_event(name: str) -> None:
    stage = Kicked()
    KickFunction(stage.host).clean_up({"Records": [UNEXPIRED[name](stage)]})
    assert stage.world.told.events == []


ODD: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "no records": {},
    "records that are text": {"Records": "INSERT"},
    "a record that is none": {"Records": [5]},
    "images that are none": {"Records": [{"dynamodb": ["row"]}]},
    "an image that is text": {"Records": [{"dynamodb": {"NewImage": "row"}}]},
    "an image of plain values": {"Records": [{"dynamodb": {"OldImage": {"kind": "T"}}}]},
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_batch_of_a_stream_is_refused_and_nothing_is_done(odd: str) -> None:
    stage = Kicked()
    function = KickFunction(stage.host)
    for deed in (function.kick, function.clean_up):
        with pytest.raises(
            InputInvalid, match=r"^event: is not a batch of a DynamoDB stream\nmap the tasks"
        ):
            deed(ODD[odd])
    assert stage.started.events == []


# -- no gap ----------------------------------------------------------------------------------------


class Points:
    """The moments of a sweep between which others act: each request of it, and each wait. At some
    of them it is the test's turn.
    """

    def __init__(self) -> None:
        self.count = 0
        self.turns: dict[int, list[Callable[[], None]]] = {}
        self._lock = threading.RLock()

    def at(self, point: int, act: Callable[[], None]) -> None:
        self.turns.setdefault(point, []).append(act)

    def reached(self) -> None:
        with self._lock:
            self.count += 1
            acts = self.turns.pop(self.count, [])
            for act in acts:
                act()

    def rest(self) -> None:
        """What was to happen after the sweep's last moment."""
        for _, acts in sorted(self.turns.items()):
            for act in acts:
                act()


class Lagging(MemoryStore):
    """A store whose index shows a new task only after a while."""

    points: Points
    lag = timedelta(0)

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        self.points.reached()
        page = super().candidates(queue, shard, until=until, limit=limit, after=after)
        self.points.reached()
        now = self._clock.now()
        return Page(
            [each for each in page.items if self._submitted(each) + self.lag <= now], page.next
        )

    def _submitted(self, candidate: Candidate) -> datetime:
        task = self.get(candidate.task_id)
        assert task is not None
        return task.created_at


class Interleaved(Kicked):
    """One sweep with a task of its own, and another task that is inserted and told of at chosen
    points of it.
    """

    def __init__(self, lag: float) -> None:
        super().__init__()
        self.points = Points()
        store = Lagging(clock=self.world.clock, ids=self.world.ids)
        store.points, store.lag = self.points, timedelta(seconds=lag)
        wait, awake = self.world.parts.idle.wait, self.world.reservations
        self.world.store = store
        self.world.parts = replace(self.world.parts, store=store)
        self.world.rdq = type(self.world.rdq)(parts=self.world.parts)
        self.host = replace(self.host, parts=self.world.parts)

        def waits(wake: threading.Event, seconds: float) -> bool:
            self.points.reached()
            return wait(wake, seconds)

        self.world.parts.idle.wait = waits  # type: ignore[method-assign]
        release = awake.release

        def falls_asleep(queue: str) -> None:
            self.points.reached()
            release(queue)
            self.points.reached()

        awake.release = falls_asleep  # type: ignore[method-assign]

    def run(self) -> None:
        self.submit()
        sweeper = build_sweeper(
            self.world.parts,
            self.world.registry,
            serves=[QUEUE],
            worker="w",
            host=self.world.host,
            awake=True,
        )
        sweeper.sweep(LIMITS)
        self.points.rest()

    def insert(self) -> None:
        (self.late,) = self.submit()

    def tell(self) -> None:
        self.kick(self.new())

    @property
    def late_task(self) -> Task:
        return self.world.task(self.late)


def points_of(lag: float) -> int:
    stage = Interleaved(lag)
    stage.run()
    return stage.points.count


@pytest.mark.parametrize("lag", [0, 1])
def test_whenever_a_row_is_written_and_its_record_delivered_a_sweep_sees_it_or_is_started(
    lag: float,
) -> None:
    last = points_of(lag) + 1
    assert last > 10
    seen_by_the_first = 0
    for inserted in range(1, last + 1):
        for told in range(inserted, last + 1):
            stage = Interleaved(lag)
            stage.points.at(inserted, stage.insert)
            stage.points.at(told, stage.tell)
            stage.run()
            is_done = stage.late_task.status is Status.SUCCEEDED
            seen_by_the_first += is_done
            assert is_done or stage.started.events, f"inserted at {inserted}, told of at {told}"
    assert seen_by_the_first > 0


def test_a_steady_stream_of_submits_keeps_the_number_of_sweeps_bounded() -> None:
    stage = Kicked(dispatch={"concurrency": 4})
    clock, begun = stage.world.clock, stage.now
    more = iter(range(60))

    def handle(_request: Any) -> None:
        """Each task takes 10 ms, in which another one is submitted, and told of."""
        clock.advance("10ms")
        if next(more, None) is not None:
            stage.submit()
            stage.kick(stage.new())

    stage.world.functions.always("charge-fn", handle)
    stage.submit()
    stage.kick(stage.new())
    stage.sweep({"queues": [QUEUE]}, seconds=600)
    assert stage.now - begun >= timedelta(seconds=10)
    assert stage.world.parts.store.counts(QUEUE).pending == 0
    assert len(stage.started.events) <= 2


def test_the_documented_record_is_read() -> None:
    stage = Kicked()
    assert stage.kick(*event("dynamodb_stream")["Records"]) == [QUEUE]
    assert json.loads(json.dumps(stage.started.events[0][1])) == {"queues": [QUEUE]}
