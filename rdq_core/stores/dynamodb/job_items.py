"""A job as an item of the control table, and back."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.domain.times import from_millis, to_millis
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Item, Reader, compact_json, number, seconds_up, text

KEPT_FOR: Final = timedelta(days=90)
"""How long a job that has ended can be looked at; its audit records stay."""
_VERSION: Final = 1
_MOMENTS: Final = ("created_at", "cutoff", "due_at", "ended_at", "held_until", "judged_by")
_SEEN: Final = ("page", "canary")


def job_item(key: Item, job: Job) -> Item:
    """The job under its key. One that is over ends some time after it."""
    item = {
        **key,
        Attr.VERSION: number(_VERSION),
        Attr.REVISION: number(job.revision),
        Attr.JOB: text(compact_json(_plain(job)).decode()),
    }
    return (
        item
        if job.ended_at is None
        else item | {Attr.EXPIRES_AT: number(seconds_up(job.ended_at + KEPT_FOR))}
    )


def read_job(item: Mapping[str, Any]) -> Job:
    """A job out of its item. Raises CorruptItem."""
    reader = Reader(item, f"job {item[Attr.SK]['S']}")
    if reader.number(Attr.VERSION) > _VERSION:
        raise reader.corrupt("it was written by a newer rdq")
    plain = reader.json_of(Attr.JOB, reader.text(Attr.JOB).encode("utf-8", "surrogatepass"))
    try:
        return _job(plain)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise reader.corrupt(f"{Attr.JOB} has not the shape of a job") from None


def _plain(job: Job) -> dict[str, Any]:
    plain = {each.name: getattr(job, each.name) for each in fields(job)}
    plain |= {name: _millis(plain[name]) for name in _MOMENTS}
    plain |= {
        name: [[seen.task_id, _millis(seen.dead_at), seen.attempts] for seen in plain[name]]
        for name in _SEEN
    }
    return plain


def _job(plain: Mapping[str, Any]) -> Job:
    read = {each.name: plain[each.name] for each in fields(Job)}
    read |= {name: _moment(read[name]) for name in _MOMENTS}
    read |= {
        name: tuple(Seen(task_id=i, dead_at=from_millis(d), attempts=n) for i, d, n in read[name])
        for name in _SEEN
    }
    return Job(**{**read, "state": JobState(read["state"]), "refusals": tuple(read["refusals"])})


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else to_millis(moment)


def _moment(millis: int | None) -> datetime | None:
    return None if millis is None else from_millis(millis)


def readable(item: Mapping[str, Any]) -> Job | None:
    """The same; None for what can't be read."""
    try:
        return read_job(item)
    except CorruptItem:
        return None
