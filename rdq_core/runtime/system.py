"""Time, chance, waiting and fresh names, as the operating system has them."""

import random
import secrets
import threading
import time
from datetime import UTC, datetime

from rdq_core.domain.times import cut_to_millis


class SystemClock:
    """The machine's own clock. It is taken as it is: what a worker may do with a wrong one is the
    storage clock's affair.
    """

    def now(self) -> datetime:
        """The present moment: aware, UTC, cut to milliseconds."""
        return cut_to_millis(datetime.now(UTC))

    def monotonic(self) -> float:
        """Seconds on a clock that is never set."""
        return time.monotonic()


class SystemJitter:
    """Even chance."""

    def fraction(self) -> float:
        """A number from -1 to 1."""
        return random.uniform(-1.0, 1.0)  # noqa: S311 - it spreads load, it keeps no secret


class SystemSleeper:
    """Waiting in real time."""

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Wait until `wake` is set or the time is over; True when it was set."""
        return wake.wait(seconds)


class SystemIds:
    """Fresh names from the system's own randomness."""

    def task_id(self) -> str:
        """A new ULID. Loads python-ulid when first asked."""
        from ulid import ULID

        return str(ULID())

    def token(self) -> str:
        """A claim token of 128 random bits."""
        return secrets.token_urlsafe(16)

    def nonce(self) -> str:
        """A record's name of 72 random bits."""
        return secrets.token_urlsafe(9)
