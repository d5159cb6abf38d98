"""A claimant in a process of its own: waits for a word on stdin, claims what it can, and prints the ids that it won.

python -m tests.contract.claimant NOW SEED        the engine is in the environment; NOW is RFC 3339
"""

import json
import sys
from datetime import datetime

from rdq_core.runtime.system import SystemIds, SystemJitter, SystemSleeper
from rdq_core.runtime.wiring import dynamodb_client
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.contract.claiming import claim_all
from tests.support.stores import SHARDS, TABLES


def main(now: str, seed: str) -> None:
    clock = FrozenClock(datetime.fromisoformat(now))
    store = DynamoTaskStore(
        dynamodb_client(),
        TABLES,
        clock=clock,
        ids=SystemIds(),
        jitter=SystemJitter(),
        sleeper=SystemSleeper(),
        shards_ever=lambda _queue: SHARDS,
    )
    bench = Bench(store, clock, raw=lambda _id: None, shards=SHARDS)
    say("ready")
    sys.stdin.readline()
    say(json.dumps(claim_all(store, bench, int(seed))))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
