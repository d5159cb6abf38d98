"""How soon a task starts on Lambda: from its due time to its claim, by way of the stream, the kick
and the sweeper.

    python -m benchmarks.kick [samples]

The functions run on ministack as processes of this machine, warm. Each task is submitted when no
sweep is awake, so it costs a kick and an invocation; those that come while a sweep is awake are
found by its next look, within a second.
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
ASLEEP_AFTER: Final = 5.0
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
        list(lateness(shop, 2, timedelta(0)))  # the functions are warm then
        for name, delay in (
            ("due at submit", timedelta(0)),
            ("due two seconds later", timedelta(seconds=2)),
        ):
            tell(name, sorted(lateness(shop, samples, delay)))


def lateness(shop: Deployment, samples: int, delay: timedelta) -> Iterator[float]:
    """Milliseconds from due to claimed, of one task after the other."""
    for _ in range(samples):
        receipt = shop.rdq.submit(QUEUE, "charge", {}, delay=delay)
        give_up = time.monotonic() + PATIENCE
        while not (attempts := shop.rdq.get(receipt.id).attempts) and time.monotonic() < give_up:
            time.sleep(0.05)
        due_at = shop.rdq.get(receipt.id).created_at + delay
        yield (attempts[0].started_at - due_at) / timedelta(milliseconds=1)
        time.sleep(ASLEEP_AFTER)


def tell(name: str, found: list[float]) -> None:
    """One line."""
    worst = found[max(int(len(found) * 0.95) - 1, 0)]
    print(
        f"{name:24} median {statistics.median(found):6.0f} ms   95% {worst:6.0f} ms   of {len(found)}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
