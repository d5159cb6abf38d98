"""The host of rdq's Lambda functions: parts that outlive an invocation, and its start and end."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aws_lambda_powertools.metrics import MetricUnit

from rdq_core.handlers.encoding import encode_json
from rdq_core.runtime.telemetry import LogsAndMetrics, MetricsSink, log_as_json
from rdq_core.runtime.wiring import Parts, connect, lambda_client
from rdq_core.stores.dynamodb.clock import StorageClock

SERVICE: Final = "POWERTOOLS_SERVICE_NAME"
"""The environment variable that names the stack in its metrics."""
_READ_TIMEOUT_SECONDS: Final = 5.0

Start = Callable[[str, Mapping[str, Any]], None]
"""Starts a function with an event, without waiting for its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionHost:
    """The process of one function. Its `metrics` are printed at the end of each invocation."""

    parts: Parts
    metrics: MetricsSink
    start: Start
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @contextlib.contextmanager
    def invocation(self) -> Iterator[None]:
        """Wrap each invocation.

        Lambda may have frozen the process before it, so the storage clock drops its offset.
        """
        clock = self.parts.clock
        if isinstance(clock, StorageClock):
            clock.forget()
        try:
            yield
        finally:
            if isinstance(clock, StorageClock):
                self.metrics.measure(
                    "clock_offset_ms", clock.offset.total_seconds() * 1000, MetricUnit.Milliseconds
                )
            self.metrics.flush()


def host_from_env(name: str) -> FunctionHost:
    """The host for the function of this name, on the environment's AWS. Made at a cold start."""
    log_as_json()
    metrics = MetricsSink(service=os.environ.get(SERVICE) or name)
    return FunctionHost(
        parts=connect(events=LogsAndMetrics(metrics)), metrics=metrics, start=_starter()
    )


def _starter() -> Start:
    @functools.cache
    def client() -> Any:
        return lambda_client(_READ_TIMEOUT_SECONDS)

    def start(function: str, event: Mapping[str, Any]) -> None:
        client().invoke(FunctionName=function, InvocationType="Event", Payload=encode_json(event))

    return start
