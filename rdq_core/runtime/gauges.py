"""Metrics read from storage: the depth of each queue's DLQ and the age of its oldest due task.

Scheduled sweeps emit them once a minute, also for queues that workers serve. Counting stops at
10,000.
"""

from datetime import datetime, timedelta
from typing import Final

from aws_lambda_powertools.metrics import MetricUnit

from rdq_core.errors import RdqError
from rdq_core.runtime.telemetry import MetricsSink
from rdq_core.runtime.wiring import Parts

_EVERY: Final = timedelta(minutes=1)


class Gauges:
    """The gauges of one process, read at most once a minute: counting costs reads."""

    def __init__(self, parts: Parts, metrics: MetricsSink) -> None:
        self._parts = parts
        self._metrics = metrics
        self._read_at: datetime | None = None

    def emit(self) -> None:
        """Measure every queue, at most once a minute.

        A queue that can't be read is reported as an error; the others are still measured.
        """
        now = self._parts.clock.now()
        if self._read_at is not None and now - self._read_at < _EVERY:
            return
        self._read_at = now
        for queue in self._parts.queues.all():
            self._measure(queue, now)

    def _measure(self, queue: str, now: datetime) -> None:
        try:
            counts = self._parts.store.counts(queue)
        except RdqError as failed:
            self._parts.on_error(failed, where=f"measuring queue {queue}")
            return
        waited = timedelta(0) if counts.oldest_due_at is None else now - counts.oldest_due_at
        age = max(waited, timedelta(0)) / timedelta(seconds=1)
        self._metrics.measure("dlq_depth", counts.dead, MetricUnit.Count, queue=queue)
        self._metrics.measure("oldest_pending_age_seconds", age, MetricUnit.Seconds, queue=queue)
