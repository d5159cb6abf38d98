"""What rdq's own functions share: parts that outlive an invocation, and what each invocation begins
and ends with.
"""

import contextlib
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
"""The environment variable that tells the metrics of one stack from another's."""
_SECONDS: Final = 5.0

Start = Callable[[str, Mapping[str, Any]], None]
"""Starts a function with an event, and doesn't wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionHost:
    """One function's process. `metrics` are printed at the end of each invocation."""

    parts: Parts
    metrics: MetricsSink
    start: Start
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @contextlib.contextmanager
    def invocation(self) -> Iterator[None]:
        """Around each invocation: the process may have been frozen before it, so no time is known
        any more.
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
    """The host on the environment's AWS, for the function of this name. Made once, while the
    function is cold.
    """
    log_as_json()
    metrics = MetricsSink(service=os.environ.get(SERVICE) or name)
    return FunctionHost(
        parts=connect(events=LogsAndMetrics(metrics)), metrics=metrics, start=_starter()
    )


def _starter() -> Start:
    made: list[Any] = []

    def start(function: str, event: Mapping[str, Any]) -> None:
        if not made:
            made.append(lambda_client(_SECONDS))
        made[0].invoke(FunctionName=function, InvocationType="Event", Payload=encode_json(event))

    return start
