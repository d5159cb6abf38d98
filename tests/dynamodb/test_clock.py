import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.times import cut_to_millis
from rdq_core.stores.dynamodb.clock import ClockReading, StorageClock
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from tests.support.engines import Engine

START = datetime(2026, 7, 20, 12, 0, 0, 300_000, tzinfo=UTC)


class Machine:
    """A machine whose clock is off, and the true time that storage has. Each request takes
    `latency` seconds each way.
    """

    def __init__(self, offset: float = 0.0, *, drift: float = 0.0) -> None:
        self.passed = 0.0
        self.frozen = 0.0
        self.offset = offset
        self.drift = drift
        self.latency = 0.02
        self.requests = 0
        self.clock = StorageClock(self, probe=self.request)

    def now(self) -> datetime:
        return cut_to_millis(
            self.true() + timedelta(seconds=self.offset + self.passed * self.drift)
        )

    def monotonic(self) -> float:
        return 1000.0 + (self.passed - self.frozen) * (1 + self.drift)

    def true(self) -> datetime:
        return START + timedelta(seconds=self.passed)

    def freeze(self, seconds: float) -> None:
        """The machine stands still, its monotonic clock too; its wall clock is right again
        afterwards.
        """
        self.passed += seconds
        self.frozen += seconds

    def request(self) -> None:
        self.requests += 1
        sent = self.reading()
        self.passed += self.latency
        date = self.true().replace(microsecond=0)
        self.passed += self.latency
        self.clock.observe(date, sent=sent, received=self.reading())

    def reading(self) -> ClockReading:
        return ClockReading(self.now().timestamp(), self.monotonic())

    def error(self) -> float:
        """By how much rdq's time is off, in seconds."""
        return abs((self.clock.now() - self.true()).total_seconds())


class Unreachable(Machine):
    """A machine whose requests fail while `is_cut_off`; a `refusal` is an answer all the same."""

    is_cut_off = False
    refusal = False
    failures = 0

    def request(self) -> None:
        if self.refusal:
            super().request()
        if self.is_cut_off or self.refusal:
            self.failures += 1
            raise ConnectionError
        super().request()


@pytest.mark.parametrize("offset", [600, -600, 3, -3, 86_400 * 365])
def test_a_clock_that_is_off_is_right_to_within_two_seconds_from_the_first_answer_on(
    offset: float,
) -> None:
    machine = Machine(offset)
    assert machine.error() < 2
    assert machine.requests == 1


class SlowAtFirst(Machine):
    """A machine that stands still for a minute in the middle of its first request, while its clocks
    go on.
    """

    def request(self) -> None:
        self.latency = 30 if self.requests == 0 else 0.02
        super().request()


@pytest.mark.parametrize("offset", [600, -600])
def test_an_answer_that_took_long_proves_too_little_and_is_asked_for_again(offset: float) -> None:
    machine = SlowAtFirst(offset)
    assert machine.error() < 2
    assert machine.requests == 2


def test_where_every_answer_takes_long_the_time_is_told_all_the_same() -> None:
    machine = Machine(600)
    machine.latency = 1.5
    assert machine.error() < 4
    assert machine.requests == 3


def test_a_vague_answer_does_not_unsettle_what_was_proved() -> None:
    machine = Machine(600)
    machine.clock.now()
    machine.passed += 601
    machine.latency = 30
    assert machine.error() < 2


@pytest.mark.parametrize("offset", [600, -600])
def test_more_answers_make_it_more_exact(offset: float) -> None:
    machine = Machine(offset)
    for _ in range(40):
        machine.request()
        machine.passed += 0.37
    assert machine.error() < 0.2


@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=30), st.floats(0, 0.4))
def test_an_exact_clock_is_never_touched(pauses: list[float], latency: float) -> None:
    machine = Machine()
    machine.latency = latency
    for pause in pauses:
        machine.passed += pause
        machine.request()
        assert abs(machine.clock.offset) < timedelta(milliseconds=2)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.floats(0, 900)),
            st.tuples(st.just("step"), st.floats(-900, 900)),
            st.tuples(st.just("freeze"), st.floats(0, 900)),
            st.tuples(st.just("ask"), st.just(0.0)),
        ),
        max_size=40,
    )
)
def test_whatever_the_machine_does_time_never_goes_back(
    happenings: list[tuple[str, float]],
) -> None:
    machine = Machine()
    latest = machine.clock.now()
    for what, size in happenings:
        happen: dict[str, Callable[[], None]] = {
            "wait": lambda size=size: setattr(machine, "passed", machine.passed + size),  # type: ignore[misc]
            "step": lambda size=size: setattr(machine, "offset", machine.offset + size),  # type: ignore[misc]
            "freeze": lambda size=size: machine.freeze(size),  # type: ignore[misc]
            "ask": machine.request,
        }
        happen[what]()
        assert machine.clock.now() >= latest
        latest = machine.clock.now()


@pytest.mark.parametrize("step", [600, -600, 0.3])
def test_a_clock_that_is_set_is_held_against_storage_again_before_it_is_trusted(
    step: float,
) -> None:
    machine = Machine()
    machine.request()
    machine.passed += 5
    machine.offset += step
    machine.passed += 700 if step < 0 else 0
    assert machine.error() < 2


def test_a_machine_that_was_frozen_asks_again() -> None:
    machine = Machine()
    machine.request()
    machine.freeze(300)
    assert machine.error() < 2
    assert machine.requests == 2


def test_a_machine_whose_clocks_both_stood_still_is_late_until_the_next_answer_never_early() -> (
    None
):
    machine = Machine()
    machine.request()
    machine.freeze(300)
    machine.offset = -300
    assert machine.clock.now() <= machine.true()
    machine.request()
    assert machine.error() < 2


def test_a_clock_that_drifts_stays_right() -> None:
    machine = Machine(600, drift=150e-6)
    for _ in range(300):
        machine.passed += 60
        machine.request()
        assert machine.error() < 2


def test_what_was_learned_expires_after_ten_minutes() -> None:
    machine = Machine(600)
    machine.clock.now()
    machine.passed += 601
    machine.clock.now()
    assert machine.requests == 2


def test_a_new_invocation_trusts_nothing() -> None:
    machine = Machine(600)
    machine.clock.now()
    machine.passed += 2
    machine.clock.forget()
    machine.clock.now()
    assert machine.requests == 2


def test_answers_that_contradict_each_other_leave_the_newest() -> None:
    machine = Machine()
    machine.request()
    reading = machine.reading()
    machine.clock.observe(machine.true() + timedelta(hours=1), sent=reading, received=reading)
    assert machine.clock.offset >= timedelta(minutes=59)


def test_a_probe_that_fails_is_not_repeated_at_every_look_at_the_clock() -> None:
    machine = Unreachable()
    machine.clock.now()
    machine.is_cut_off = True
    machine.passed += 601
    for _ in range(5):
        machine.clock.now()
    assert machine.failures == 1


def test_no_time_is_told_before_the_first_answer() -> None:
    machine = Unreachable(600)
    machine.is_cut_off = True
    with pytest.raises(ConnectionError):
        machine.clock.now()
    machine.is_cut_off = False
    assert machine.error() < 2


def test_a_question_that_is_refused_is_answered_all_the_same() -> None:
    machine = Unreachable(600)
    machine.refusal = True
    assert machine.error() < 2


@pytest.mark.parametrize("step", [600, -600])
def test_a_clock_that_is_set_while_storage_is_out_of_reach_goes_on_by_the_time_that_has_passed(
    step: float,
) -> None:
    machine = Unreachable(20)
    machine.clock.now()
    machine.is_cut_off = True
    machine.offset += step
    machine.passed += 30
    assert machine.error() < 2


def test_what_has_expired_is_better_than_nothing_while_storage_is_out_of_reach() -> None:
    machine = Unreachable(600)
    machine.clock.now()
    machine.is_cut_off = True
    machine.passed += 3600
    assert machine.error() < 3
    assert machine.clock.now() <= machine.true() + timedelta(seconds=2)


def test_nobody_is_told_the_machines_time_while_another_thread_asks_for_the_right_one() -> None:
    machine = Machine(600)
    asking, may_answer = threading.Event(), threading.Event()

    def slow() -> None:
        asking.set()
        assert may_answer.wait(10)
        machine.request()

    clock = StorageClock(machine, probe=slow)
    machine.clock = clock
    told: list[datetime] = []
    threads = [threading.Thread(target=lambda: told.append(clock.now())) for _ in range(2)]
    threads[0].start()
    assert asking.wait(10)
    threads[1].start()
    threads[1].join(0.05)
    may_answer.set()
    for thread in threads:
        thread.join()
    assert [abs((each - machine.true()).total_seconds()) < 2 for each in told] == [True, True]


def test_it_learns_from_the_answers_of_a_client(engine: Engine) -> None:
    client = engine.dynamodb
    create_tables(client, Tables("tasks", "dlq", "control", "audit"))
    machine = Machine(600)
    seen: list[object] = []
    clock = StorageClock(
        machine, probe=lambda: seen.append(client.describe_table(TableName="tasks"))
    )
    clock.listen_to(client)
    before, told, after = datetime.now(UTC), clock.now(), datetime.now(UTC)
    assert before - timedelta(seconds=2) < told < after + timedelta(seconds=2)
    assert len(seen) == 1
