"""How deep each queue's DLQ is and how long its oldest due task has been waiting, as metrics, read from storage.

A scheduled sweep tells them, so it is done once a minute, also for queues that workers serve. Counting stops at 10,000.
"""

from datetime import timedelta

from aws_lambda_powertools.metrics import MetricUnit

from rdq_core.errors import RdqError
from rdq_core.runtime.telemetry import MetricsSink
from rdq_core.runtime.wiring import Parts


def tell_depths(parts: Parts, metrics: MetricsSink) -> None:
    """Measure every queue. What can't be read is told as an error, and stops nothing."""
    for queue in parts.queues.all():
        try:
            counts = parts.store.counts(queue)
        except RdqError as failed:
            parts.on_error(failed, where=f"measuring queue {queue}")
            continue
        waited = timedelta(0) if counts.oldest_due_at is None else parts.clock.now() - counts.oldest_due_at
        age = max(waited, timedelta(0)).total_seconds()
        metrics.measure("dlq_depth", counts.dead, MetricUnit.Count, queue=queue)
        metrics.measure("oldest_pending_age_seconds", age, MetricUnit.Seconds, queue=queue)
