"""A whole rdq inside a test: DynamoDB played by moto, time that the test moves, and no waiting.

    with embedded({"payments.charge": {"retry": {"max_attempts": 3}}}) as local:
        receipt = local.rdq.submit("payments.charge", "charge-payment", {"amount": 5})
        local.drain(registry, horizon="7d")

Needs `pip install rdq-core[testing]`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final

import boto3

from rdq_core.client.rdq import Rdq
from rdq_core.domain.units import parse_duration
from rdq_core.engine.ports import EventSink
from rdq_core.engine.report import SweepReport
from rdq_core.engine.sweep import SweepLimits
from rdq_core.handlers.registry import Registry
from rdq_core.runtime.log import Quiet, log_error
from rdq_core.runtime.relay import ErrorRelay
from rdq_core.runtime.wiring import Parts, connect
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.testing.clock import FollowsClock, FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.moto import atomic_moto

_numbers = count(1)
_REGION: Final = "eu-central-1"
_NOBODY: Final = "testing"


class Embedded:
    """An rdq on tables of its own, with `rdq` for programs, `clock` to move, and `parts` for whoever wants more."""

    def __init__(self, client: Any, queues: Mapping[str, Mapping[str, Any]], *, events: EventSink) -> None:
        self.client = client
        self.clock = FrozenClock()
        self.tables = _fresh_tables()
        create_tables(client, self.tables)
        parts = connect(client, self.tables, clock=self.clock, events=events)
        self.parts: Parts = replace(
            parts,
            jitter=NoJitter(),
            idle=SkipsSleep(self.clock),
            busy=FollowsClock(self.clock),
            on_error=ErrorRelay(log_error),
        )
        self.rdq = Rdq(parts=self.parts)
        for queue, declared in queues.items():
            self.configure(queue, declared)

    def configure(self, queue: str, declared: Mapping[str, Any]) -> None:
        """Declare a queue, or declare it anew, as a configuration file does."""
        stored = self.parts.queues.stored(queue)
        self.parts.queues.put_declared(queue, declared, {}, expected_revision=0 if stored is None else stored.revision)

    def drain(self, registry: Registry, *, horizon: str = "0s") -> SweepReport:
        """Run all work of the registry's queues that is due, and what becomes due within `horizon`, moving the clock.

        The default runs what is due at this moment. Retries are work too: a long horizon plays out whole lives.
        """
        sweeper = self.parts.sweeper(registry, serves=registry.queues, worker="test:1", rdq=self.rdq)
        linger = parse_duration("2s") if parse_duration(horizon) else parse_duration("0s")
        return sweeper.sweep(SweepLimits(horizon=parse_duration(horizon), linger=linger))

    def advance(self, span: str) -> None:
        """Let time pass, as in `advance("2h")`. Nothing runs by itself: call `drain`."""
        self.clock.advance(span)


def _fresh_tables() -> Tables:
    """Names of its own for each: a mock within a mock, as in a test suite that has one for all its tests, shares
    tables.
    """
    number = next(_numbers)
    return Tables(*(f"rdq-{table}-{number}" for table in ("tasks", "dlq", "control", "audit")))


@contextmanager
def embedded(queues: Mapping[str, Mapping[str, Any]], *, events: EventSink | None = None) -> Iterator[Embedded]:
    """An empty rdq with these queues, each given as under `queues` of a configuration file. It is gone afterwards."""
    with atomic_moto():
        client = boto3.client("dynamodb", region_name=_REGION, aws_access_key_id=_NOBODY, aws_secret_access_key=_NOBODY)
        yield Embedded(client, queues, events=events or Quiet())
