"""How soon a task starts on Lambda: the time from due to claimed, through stream, kick and sweeper.

    python -m benchmarks.kick [samples]

The functions run on ministack, as warm processes of this machine. Each task is submitted while no
sweep is announced, so it takes a kick and an invocation. A task submitted during a sweep is found
by its next look, within a second.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from tests.support.deployed import Deployment
from tests.support.engines import Engine
from tests.support.ministack import Ministack

QUEUE: Final = "billing"
FUNCTION: Final = "def handler(event, context):\n    return None\n"
SWEEP_ENDS_WITHIN: Final = 5.0
PATIENCE: Final = 60.0
TIMES: Final = {"handler_timeout": "2m", "lease": "10m"}


def main(samples: int) -> None:
    with Ministack() as server, tempfile.TemporaryDirectory() as folder:
        shop = Deployment(
            Engine("ministack", access_key="000000000001", endpoint_url=server.endpoint_url)
        )
        shop.deploy(
            "charge-fn",
            "charge.handler",
            code={"charge.py": FUNCTION},
            EFFECTS=str(Path(folder) / "effects"),
        )
        shop.configure(QUEUE, handlers={"charge": {"function": "charge-fn"}}, execution=TIMES)
        sweeper = shop.deploy("rdq-sweeper", "functions.sweeper.handler")
        shop.deploy("rdq-kick", "functions.kick.handler", RDQ_SWEEPER_FUNCTION=sweeper)
        shop.follow_the_stream("rdq-kick")
        list(lateness(shop, 2, timedelta(0)))  # warms the functions up
        for name, delay in (
            ("due at submit", timedelta(0)),
            ("due two seconds later", timedelta(seconds=2)),
        ):
            report(name, sorted(lateness(shop, samples, delay)))


def lateness(shop: Deployment, samples: int, delay: timedelta) -> Iterator[float]:
    """Milliseconds from due to claimed, of one task after the other."""
    for _ in range(samples):
        receipt = shop.rdq.submit(QUEUE, "charge", {}, delay=delay)
        give_up = time.monotonic() + PATIENCE
        while not (attempts := shop.rdq.get(receipt.id).attempts) and time.monotonic() < give_up:
            time.sleep(0.05)
        due_at = shop.rdq.get(receipt.id).created_at + delay
        yield (attempts[0].started_at - due_at) / timedelta(milliseconds=1)
        time.sleep(SWEEP_ENDS_WITHIN)


def report(name: str, millis: list[float]) -> None:
    """Print one line."""
    p95, median = millis[max(int(len(millis) * 0.95) - 1, 0)], statistics.median(millis)
    print(f"{name:24} median {median:6.0f} ms   95% {p95:6.0f} ms   of {len(millis)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
