"""The contract of reservations: one host starts a sweep for new work, and none while one runs."""

from datetime import timedelta

from rdq_core.engine.ports import Reservations
from rdq_core.testing.contract.bench import side_by_side
from rdq_core.testing.contract.factories import NOW, QUEUE

TWO = timedelta(seconds=2)


def books(awake: Reservations, seconds: float = 0, queue: str = QUEUE) -> bool:
    """Whether a host acquires the reservation, this number of seconds after `NOW`."""
    now = NOW + timedelta(seconds=seconds)
    return awake.acquire(queue, now=now, until=now + TWO)


class ReservationsContract:
    """At most one of the hosts that see new work starts a sweep. Fixture: `awake`."""

    def test_of_many_who_would_start_a_sweep_one_does(self, awake: Reservations) -> None:
        assert sorted(map(str, side_by_side([lambda: books(awake)] * 4))) == [
            "False",
            "False",
            "False",
            "True",
        ]
        assert [books(awake, 1.9), books(awake, 2)] == [False, True]

    def test_while_one_is_awake_no_other_is_started(self, awake: Reservations) -> None:
        awake.extend(QUEUE, until=NOW + TWO)
        assert [books(awake), books(awake, 1), books(awake, 2)] == [False, False, True]

    def test_after_its_release_the_next_one_starts_a_sweep(self, awake: Reservations) -> None:
        awake.extend(QUEUE, until=NOW + TWO)
        awake.release(QUEUE)
        assert books(awake)

    def test_a_shorter_presence_does_not_shorten_a_longer_one(self, awake: Reservations) -> None:
        awake.extend(QUEUE, until=NOW + TWO)
        awake.extend(QUEUE, until=NOW + timedelta(seconds=1))
        assert not books(awake, 1.5)

    def test_each_queue_has_its_own_presence(self, awake: Reservations) -> None:
        assert [books(awake), books(awake, queue="mail"), books(awake)] == [True, True, False]
