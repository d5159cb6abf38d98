"""The fixed shapes of answers to operators, as JSON data. Programs depend on them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.envelope import to_envelope
from rdq_core.domain.job import Job, JobState
from rdq_core.domain.task import Task
from rdq_core.domain.times import format_time, span_millis
from rdq_core.ops.dead_letters import Group
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.submitting import BulkReport


def listed(items: Iterable[Mapping[str, Any]], next_cursor: str | None = None) -> dict[str, Any]:
    """A list, or a page of one."""
    return {"items": [dict(item) for item in items], "next_cursor": next_cursor}


def task_view(task: Task, *, show_payload: bool = False) -> dict[str, Any]:
    """The envelope, with the payload's size and SHA-256; with the payload itself only on demand."""
    envelope = to_envelope(task)
    size = {
        "payload_size": len(task.payload),
        "payload_sha256": hashlib.sha256(task.payload).hexdigest(),
    }
    if not show_payload:
        del envelope["payload"]
    return {**envelope, **size}


def entry_view(entry: DeadEntry) -> dict[str, Any]:
    """An entry of the DLQ."""
    return {
        "id": entry.task_id,
        "queue": entry.queue,
        "handler_ref": entry.handler_ref,
        "handler_version": entry.handler_version,
        "dead_at": format_time(entry.dead_at),
        "created_at": format_time(entry.created_at),
        "code": str(entry.code),
        "type": entry.type,
        "message": entry.message,
        "fingerprint": entry.fingerprint,
        "attempts": entry.attempts,
        "redrive_count": entry.redrive_count,
        "payload_size": entry.payload_size,
    }


def group_view(group: Group) -> dict[str, Any]:
    """A group of dead tasks."""
    example = group.example
    return {
        "queue": group.queue,
        "fingerprint": group.fingerprint,
        "count": group.count,
        "handler_ref": example.handler_ref,
        "code": str(example.code),
        "type": example.type,
        "message": example.message,
        "first_seen_at": format_time(group.first_seen_at),
        "last_seen_at": format_time(group.last_seen_at),
        "example_id": example.task_id,
        "new": group.is_new,
    }


def mutation_view(mutation: Mutation) -> dict[str, Any]:
    """What a redrive, purge, cancel or forget has changed."""
    return {
        "selected": mutation.selected,
        "done": mutation.done,
        "skipped": mutation.skipped,
        "failed": mutation.failed,
        "dry_run": mutation.dry_run,
        "job_id": mutation.job_id,
    }


def changed_view(done: Mutation) -> dict[str, Any]:
    """The same, with the first reasons why tasks were left as they were."""
    refusals = [refusal.as_dict() for refusal in done.refusals]
    return mutation_view(done) | ({"refusals": refusals} if refusals else {})


def job_view(job: Job, now: datetime) -> dict[str, Any]:
    """A bulk operation.

    `due_in_ms` is the time until its next page may begin, None when no page will.
    """
    ready_at = job.held_until if job.page and job.held_until is not None else job.due_at
    continues = job.state is JobState.OPEN or bool(job.page)
    return {
        "job_id": job.id,
        "operation": job.operation,
        "queue": job.queue,
        "state": str(job.state),
        "note": job.note,
        "order": dict(job.order),
        "principal": job.principal,
        "verified": job.verified,
        "reason": job.reason,
        "created_at": format_time(job.created_at),
        "ended_at": None if job.ended_at is None else format_time(job.ended_at),
        "expected": job.expected,
        "selected": job.selected,
        "done": job.done,
        "skipped": job.skipped,
        "failed": job.failed,
        "refusals": [dict(refusal) for refusal in job.refusals],
        "canary": {"sent": len(job.canary), "watched": job.judged_by is not None}
        if job.canary
        else None,
        "due_in_ms": max(span_millis(ready_at - now), 0) if continues else None,
    }


def submit_view(report: BulkReport) -> dict[str, Any]:
    """The tasks that a submit has stored, and the lines that it has refused."""
    return {
        "submitted": [asdict(submitted) for submitted in report.submitted],
        "rejected": [asdict(rejected) for rejected in report.rejected],
    }
