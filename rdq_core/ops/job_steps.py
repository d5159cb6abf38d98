"""The steps of a job as pure functions: page size, the step after a page, the record of its end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.ids import id_at
from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.engine.ports import AuditRecord, Phase
from rdq_core.errors import CorruptItem, RdqError
from rdq_core.ops.orders import Order

LONGEST_PAGE: Final = 100

_A_SECOND: Final = timedelta(seconds=1)
_REMEMBERED: Final = 20


@dataclass(frozen=True, slots=True)
class Treated:
    """A task of a page, and why it was not changed; None if the operation was applied."""

    seen: Seen
    refusal: RdqError | None


def page_size(job: Job, order: Order) -> int:
    """The number of tasks in about a second at the job's rate, within what a canary still needs."""
    count, period = order.pace
    size = max(1, min(count * _A_SECOND // period, LONGEST_PAGE))
    if order.canary is None or job.is_proved:
        return size
    return max(1, min(size, order.canary.first - len(job.canary)))


def after_page(
    job: Job, order: Order, treated: Sequence[Treated], *, began: datetime, now: datetime
) -> Job:
    """The job with its page counted, and with its next step: a page, a canary check, or the end."""
    counted = _counted(job, order, treated, began)
    if counted.state.is_over:
        return counted
    canary = order.canary if counted.canary and not counted.is_proved else None
    if canary is not None and (len(counted.canary) >= canary.first or not counted.reads_on):
        return replace(counted, judged_by=now + canary.wait, due_at=now)
    return counted if counted.reads_on else replace(counted, state=JobState.DONE, ended_at=now)


def _counted(job: Job, order: Order, treated: Sequence[Treated], began: datetime) -> Job:
    refused = [each.refusal for each in treated if each.refusal is not None]
    done = tuple(each.seen for each in treated if each.refusal is None)
    failed = sum(isinstance(refusal, CorruptItem) for refusal in refused)
    count, period = order.pace
    refusals: tuple[Any, ...] = (*job.refusals, *(refusal.as_dict() for refusal in refused))
    return job.changed(
        page=(),
        holder=None,
        held_until=None,
        selected=job.selected + len(treated),
        done=job.done + len(done),
        skipped=job.skipped + len(refused) - failed,
        failed=job.failed + failed,
        refusals=refusals[:_REMEMBERED],
        canary=(*job.canary, *done)
        if order.canary is not None and not job.is_proved
        else job.canary,
        due_at=began + len(done) * period / count,
    )


def record_of(job: Job) -> AuditRecord:
    """The record of a job's end. It depends on the job alone: repeated, it is the same record."""
    ended_at = job.ended_at or job.created_at
    counts = {name: getattr(job, name) for name in ("selected", "done", "skipped", "failed")}
    return AuditRecord(
        id=id_at(ended_at, job.id, after=job.intent),
        operation_id=job.intent,
        at=ended_at,
        principal=job.principal,
        verified=job.verified,
        operation=job.operation,
        queue=job.queue,
        reason=job.reason,
        phase=Phase.FAILED if job.state is JobState.STOPPED else Phase.DONE,
        detail={"job_id": job.id, "state": str(job.state), **counts}
        | ({"note": job.note} if job.note else {}),
    )
