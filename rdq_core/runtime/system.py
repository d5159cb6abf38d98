"""The operating system's time, randomness and waiting, as the engine's ports."""

import random
import secrets
import threading
import time
from datetime import UTC, datetime

from rdq_core.domain.times import cut_to_millis


class SystemClock:
    """The machine's own clock, uncorrected. On DynamoDB the storage clock corrects it."""

    def now(self) -> datetime:
        """The present moment: aware, UTC, cut to milliseconds."""
        return cut_to_millis(datetime.now(UTC))

    def monotonic(self) -> float:
        """Seconds on a clock that is never adjusted."""
        return time.monotonic()


class SystemJitter:
    """Uniform randomness."""

    def fraction(self) -> float:
        """A number from -1 to 1."""
        return random.uniform(-1.0, 1.0)  # noqa: S311 - it spreads load, it keeps no secret


class SystemSleeper:
    """Waits in real time."""

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Wait until `wake` is set or the time is over; True when it was set."""
        return wake.wait(seconds)


class SystemIds:
    """Fresh names from the system's source of randomness."""

    def task_id(self) -> str:
        """A new ULID. The first call imports python-ulid, so that importing rdq doesn't."""
        from ulid import ULID

        return str(ULID())

    def token(self) -> str:
        """A claim token of 128 random bits."""
        return secrets.token_urlsafe(16)

    def nonce(self) -> str:
        """A record name of 72 random bits."""
        return secrets.token_urlsafe(9)
