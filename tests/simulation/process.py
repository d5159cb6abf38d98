"""One simulated process: its clocks, its ids, and its parts of rdq."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rdq_core.domain.ids import encode_id
from rdq_core.domain.times import cut_to_millis
from rdq_core.stores.dynamodb.clock import ClockReading, StorageClock
from rdq_core.stores.dynamodb.queues import unused_key
from rdq_core.stores.dynamodb.sender import Sender
from tests.simulation.scheduler import SECOND, Home, Scheduler

START: Final = datetime(2026, 7, 20, 12, tzinfo=UTC)


def at(moment: int) -> datetime:
    """True time, of a moment of the scheduler's."""
    return START + timedelta(microseconds=moment)


class Process:
    """A process on a machine of its own, whose clock is off by `skew` microseconds."""

    def __init__(
        self, name: str, scheduler: Scheduler, seed: str, names: "Names", *, skew: int = 0
    ) -> None:
        self.name = name
        self.dice = random.Random(f"{seed}/{name}")
        self.home = Home(name, clock_stops=self.dice.random() < 0.5)
        self.ids = names
        self.skew = skew
        self.answered_at = 0
        self.cut_off_until = 0
        self.goes_on = False
        self._scheduler = scheduler
        self.clock = StorageClock(self, probe=self._probe)
        self.client: Any = None

    # -- the machine's clock -----------------------------------------------------------------------

    def now(self) -> datetime:
        """What the machine's clock says."""
        return cut_to_millis(at(self._scheduler.now + self.skew))

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return (self._scheduler.now - self.home.stood_still) / SECOND

    def reading(self) -> ClockReading:
        """Both clocks now."""
        return ClockReading(
            (START.timestamp() + (self._scheduler.now + self.skew) / SECOND), self.monotonic()
        )

    def learn(self, sent: ClockReading) -> None:
        """Observe an answer: its `Date` header has the service's time in whole seconds."""
        date = at(self.answered_at).replace(microsecond=0)
        self.clock.observe(date, sent=sent, received=self.reading())

    def _probe(self) -> None:
        Sender(self.client, jitter=self, sleeper=self, max_sends=1).get("rdq-control", unused_key())

    # -- the world around --------------------------------------------------------------------------

    def fraction(self) -> float:
        """Chance, as the engine asks for it."""
        return self.dice.uniform(-1.0, 1.0)

    def wait(self, wake: Any, seconds: float) -> bool:
        """Waiting, as the engine does it."""
        return bool(wake.wait(seconds))

    def sleep(self, seconds: float) -> None:
        """Let time pass for the thread that runs."""
        self._scheduler.wait(self._scheduler.now + max(round(seconds * SECOND), 1))

    def freeze(self, seconds: float) -> None:
        """Stand still."""
        self._scheduler.freeze(self.home, self._scheduler.now + round(seconds * SECOND))


class Names:
    """Ids, tokens and nonces that count up, so that timelines are readable. All processes of a run
    share them.
    """

    def __init__(self) -> None:
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def task_id(self) -> str:
        """A ULID."""
        return encode_id(self._next())

    def token(self) -> str:
        """A claim token."""
        return f"token-{self._next():05d}"

    def nonce(self) -> str:
        """A record's name."""
        return f"nonce-{self._next():05d}"
