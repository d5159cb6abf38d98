"""A claimant in a process of its own: waits for a word on stdin, claims what it can, and prints the
ids that it won.

python -m tests.contract.claimant NOW SEED        the engine is in the environment; NOW is RFC 3339

It wins no more than `MOST`, so that others must win the rest, however late the machine lets them
begin.
"""

import json
import sys
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.lease import Claim, Grant
from rdq_core.engine.ports import Candidate, Page
from rdq_core.runtime.system import SystemIds, SystemJitter, SystemSleeper
from rdq_core.runtime.wiring import dynamodb_client
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.contract.claiming import claim_all
from tests.support.stores import SHARDS, TABLES

MOST: Final = 60


class Sated(DynamoTaskStore):
    """A store that sees no more work once it has won its fill."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.won = 0
        # The verbs are attributes of the object: a method of this class would never be called.
        self._candidates, self._claim = self.candidates, self.claim
        self.candidates, self.claim = self._candidates_until_sated, self._claim_until_sated

    def _candidates_until_sated(self, queue: str, shard: int, **options: Any) -> Page[Candidate]:
        return Page([], None) if self.won >= MOST else self._candidates(queue, shard, **options)

    def _claim_until_sated(self, candidate: Candidate, grant: Grant) -> Claim | None:
        claim = self._claim(candidate, grant) if self.won < MOST else None
        self.won += claim is not None
        return claim


def main(now: str, seed: str) -> None:
    clock = FrozenClock(datetime.fromisoformat(now))
    store = Sated(
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
