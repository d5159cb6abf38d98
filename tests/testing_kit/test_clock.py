"""Time in tests moves when it is told to, and only then."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rdq_core.engine.ports import Clock, Jitter, Sleeper
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep


def test_the_doubles_are_what_the_engine_asks_for() -> None:
    clock: Clock = FrozenClock()
    jitter: Jitter = NoJitter()
    sleeper: Sleeper = SkipsSleep(FrozenClock())

    assert (clock.now(), jitter.fraction(), sleeper.wait(threading.Event(), 1)) == (
        clock.now(),
        0.0,
        False,
    )


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))

    assert clock.now() == clock.now()
    assert clock.advance("2h") == clock.now() == datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert clock.monotonic() == 7200.0
    assert clock.advance(timedelta(milliseconds=1)).microsecond == 1000


def test_now_is_utc_and_cut_to_milliseconds() -> None:
    there = timezone(timedelta(hours=2))

    clock = FrozenClock(datetime(2026, 1, 1, 2, 0, 0, 1999, tzinfo=there))

    assert clock.now().isoformat() == "2026-01-01T00:00:00.001000+00:00"


def test_a_clock_that_is_set_back_lets_no_time_pass() -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))

    clock.step(timedelta(minutes=-5))

    assert clock.now() == datetime(2025, 12, 31, 23, 55, tzinfo=UTC)
    assert clock.monotonic() == 0.0


def test_time_without_a_zone_and_time_that_runs_backward_are_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FrozenClock(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="negative"):
        FrozenClock().advance(timedelta(seconds=-1))


def test_sleeping_moves_the_clock_instead() -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))
    sleeper = SkipsSleep(clock)

    assert not sleeper.wait(threading.Event(), 90.0)
    assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    assert sleeper.slept == [90.0]


def test_a_sleeper_that_is_woken_already_takes_no_time() -> None:
    clock = FrozenClock()
    sleeper, wake, before = SkipsSleep(clock), threading.Event(), clock.now()
    wake.set()

    assert sleeper.wait(wake, 90.0)
    assert clock.now() == before
    assert sleeper.slept == []


@pytest.mark.parametrize(
    ("seconds", "millis"), [(0.1 + 0.2, 300), (0.0001, 1), (0.0, 1), (-1.0, 1), (1.0001, 1001)]
)
def test_a_sleep_is_never_shorter_than_asked_for(seconds: float, millis: int) -> None:
    clock = FrozenClock()
    before = clock.now()

    SkipsSleep(clock).wait(threading.Event(), seconds)

    assert clock.now() - before == timedelta(milliseconds=millis)


def test_threads_may_share_a_clock() -> None:
    clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))
    threads = [
        threading.Thread(target=lambda: [clock.advance("1s") for _ in range(500)]) for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert clock.monotonic() == 2000.0
