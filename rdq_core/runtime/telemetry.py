"""Telemetry of rdq's functions, through Powertools: events as JSON log records and as CloudWatch
metrics in embedded format.

Only events and numbers can be passed in, and an event has no field for anything private.
"""

import threading
from collections import defaultdict
from typing import Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from rdq_core.domain.attempt import Code
from rdq_core.engine.events import Event, EventName
from rdq_core.runtime.log import LOGGER, LogSink, keep_requests_out_of_logs

NAMESPACE: Final = "rdq"
_MOST_VALUES: Final = 99
"""CloudWatch takes 100 values of a metric in one record, and Powertools prints a record by itself
when it has as many.
"""
ALSO_OVERALL: Final = frozenset(
    {"dlq_depth", "oldest_pending_age_seconds", "dispatch_failed", "unservable"}
)
"""Metrics emitted also without a queue: an alarm names its dimensions, so it can't cover all
queues.
"""
_Dimensions = tuple[tuple[str, str], ...]


def log_as_json() -> None:
    """Log everything of rdq as one JSON record a line on standard output, without AWS requests."""
    keep_requests_out_of_logs()
    Logger(service=LOGGER, level="INFO")


class MetricsSink:
    """Collects the metrics of one invocation, by queue and handler ref. Safe between threads."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._values: dict[_Dimensions, dict[tuple[str, MetricUnit], list[float]]] = defaultdict(
            dict
        )

    def emit(self, event: Event) -> None:
        """Add the metrics of an event."""
        of = {"queue": event.queue, "handler_ref": event.handler_ref}
        if (name := _counted_as(event)) is not None:
            self.measure(name, 1, MetricUnit.Count, **of)
        if event.lateness_ms is not None:
            self.measure("lateness_ms", event.lateness_ms, MetricUnit.Milliseconds, **of)
        if event.claim_latency_ms is not None:
            self.measure(
                "claim_latency_ms",
                event.claim_latency_ms,
                MetricUnit.Milliseconds,
                queue=event.queue,
            )
        if event.duration_ms is not None and event.outcome is not None:
            self.measure(
                "handler_duration_ms",
                event.duration_ms,
                MetricUnit.Milliseconds,
                **of,
                outcome=str(event.outcome),
            )

    def measure(self, name: str, value: float, unit: MetricUnit, **dimensions: str) -> None:
        """Add one value."""
        every = (
            [(), tuple(dimensions.items())] if name in ALSO_OVERALL else [tuple(dimensions.items())]
        )
        with self._lock:
            for each in every:
                self._values[each].setdefault((name, unit), []).append(value)

    def flush(self) -> None:
        """Print what was collected since the last flush."""
        with self._lock:
            collected, self._values = self._values, defaultdict(dict)
        for dimensions, metrics in collected.items():
            longest = max(len(values) for values in metrics.values())
            for start in range(0, longest, _MOST_VALUES):
                part = {
                    metric: values[start : start + _MOST_VALUES]
                    for metric, values in metrics.items()
                }
                self._print(dimensions, part)

    def _print(
        self, dimensions: _Dimensions, metrics: dict[tuple[str, MetricUnit], list[float]]
    ) -> None:
        record = AmazonCloudWatchEMFProvider(
            namespace=NAMESPACE,
            service=self._service,
            metric_set={},
            dimension_set={},
            metadata_set={},
        )
        for name, value in dimensions:
            record.add_dimension(name, value)
        for (name, unit), values in metrics.items():
            for each in values:
                record.add_metric(name, unit, each)
        record.flush_metrics()


class LogsAndMetrics:
    """An `EventSink` for functions: each event is logged and counted."""

    def __init__(self, metrics: MetricsSink) -> None:
        self._metrics = metrics
        self._log = LogSink()

    def emit(self, event: Event) -> None:
        """Log and count the event."""
        self._log.emit(event)
        self._metrics.emit(event)


def _counted_as(event: Event) -> str | None:
    match event.name:
        case EventName.RETRY_SCHEDULED:
            return "retries"
        case EventName.SUCCEEDED if (event.attempt_no or 1) > 1:
            return "success_after_retry"
        case EventName.DEAD_LETTERED:
            return "dead_lettered"
        case EventName.RELEASED if event.code == Code.UNAVAILABLE:
            return "dispatch_failed"
        case EventName.LOST:
            return "lost"
        case _:
            return None
