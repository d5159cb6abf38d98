"""Bulk jobs in the control table: a partition of open ones, and one of those that have ended.

The invariant: a job moves from one partition to the other in one transaction, and each change is
written on the condition that the job is as it was read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.domain.times import from_millis, to_millis
from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.errors import CorruptItem, StoreFailed
from rdq_core.stores.dynamodb.expressions import HAS_NEVER_ENDED, IS_NEW_JOB, JOB_IS_AS_READ, all_of
from rdq_core.stores.dynamodb.schema import ENDED_JOBS, OPEN_JOBS, Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender, conditioned
from rdq_core.stores.dynamodb.values import (
    Item,
    Reader,
    Value,
    compact_json,
    number,
    text,
    with_end,
)


class DynamoJobs:
    """A `JobStore` in the control table. Safe between threads."""

    def __init__(
        self, client: Any, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids

    def create(self, job: Job) -> None:
        """See `JobStore.create`."""
        begin = {"TableName": self._table, "Item": job_item(_open(job.id), job)}
        check = {"TableName": self._table, "Key": _ended(job.id)}
        parts = [
            {"Put": conditioned(begin, all_of(IS_NEW_JOB), {})},
            {"ConditionCheck": conditioned(check, all_of(HAS_NEVER_ENDED), {})},
        ]
        try:
            self._sender.transact(parts, nonce=self._ids.nonce())
        except ConditionFailed as refused:
            # It is our own if the answer to an earlier attempt was lost. Other hosts may have
            # worked on it, or finished it, since.
            existing = _readable(row for row in refused.rows.values() if row)
            if not any(each.continues(job) for each in existing):
                raise StoreFailed(
                    f"job {job.id} is there already", may_have_happened=False
                ) from None

    def get(self, job_id: str) -> Job | None:
        """See `JobStore.get`."""
        # In this order: a job that is filed between the two reads is found by the second.
        item = self._sender.get(self._table, _open(job_id)) or self._sender.get(
            self._table, _ended(job_id)
        )
        return None if item is None else read_job(item)

    def open_jobs(self) -> Sequence[Job]:
        """See `JobStore.open_jobs`."""
        return list(_readable(self._items(OPEN_JOBS, forward=True)))

    def ended_jobs(self, *, limit: int) -> Sequence[Job]:
        """See `JobStore.ended_jobs`."""
        return list(islice(_readable(self._items(ENDED_JOBS, forward=False)), limit))

    def replace(self, seen: Job, job: Job) -> bool:
        """See `JobStore.replace`."""
        item = job_item(_open(job.id), job)
        try:
            self._sender.put(self._table, item, all_of(JOB_IS_AS_READ), _as_read(seen))
        except ConditionFailed as refused:
            # The same item is our own, and only its answer was lost.
            return refused.row == item
        return True

    def file(self, job: Job) -> None:
        """See `JobStore.file`."""
        leave = {"TableName": self._table, "Key": _open(job.id)}
        arrive = {"TableName": self._table, "Item": job_item(_ended(job.id), job)}
        parts = [
            {"Delete": conditioned(leave, all_of(JOB_IS_AS_READ), _as_read(job))},
            {"Put": arrive},
        ]
        try:
            self._sender.transact(parts, nonce=self._ids.nonce())
        except ConditionFailed as refused:
            # Without a row it was filed before, by us or another host.
            if refused.row is not None:
                raise StoreFailed(
                    f"job {job.id} has changed since it was read", may_have_happened=False
                ) from None

    def _items(self, partition: str, *, forward: bool) -> Iterator[Item]:
        request = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :partition",
            "ScanIndexForward": forward,
            "ConsistentRead": True,
        }
        return self._sender.query_all(request, {":partition": text(partition)})


def _readable(items: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
    for item in items:
        try:
            yield read_job(item)
        except CorruptItem:
            continue


def _open(job_id: str) -> Item:
    return {Attr.PK: text(OPEN_JOBS), Attr.SK: text(job_id)}


def _ended(job_id: str) -> Item:
    return {Attr.PK: text(ENDED_JOBS), Attr.SK: text(job_id)}


def _as_read(job: Job) -> dict[str, Value]:
    return {":seen_revision": number(job.revision)}


# -- a job as an item ------------------------------------------------------------------------------

KEPT_FOR: Final = timedelta(days=90)
"""How long an ended job can be looked at; its audit records stay."""
_VERSION: Final = 1
_TIMES: Final = ("created_at", "cutoff", "due_at", "ended_at", "held_until", "judged_by")
_SEEN: Final = ("page", "canary")


def job_item(key: Item, job: Job) -> Item:
    """The job under a key. One that has ended expires later."""
    item = {
        **key,
        Attr.VERSION: number(_VERSION),
        Attr.REVISION: number(job.revision),
        Attr.JOB: text(compact_json(_plain(job)).decode()),
    }
    return with_end(item, None if job.ended_at is None else job.ended_at + KEPT_FOR)


def read_job(item: Mapping[str, Any]) -> Job:
    """A job from its item. Raises CorruptItem."""
    reader = Reader(item, f"job {item[Attr.SK]['S']}")
    if reader.number(Attr.VERSION) > _VERSION:
        raise reader.corrupt("it was written by a newer rdq")
    plain = reader.json_of(Attr.JOB, reader.text(Attr.JOB).encode("utf-8", "surrogatepass"))
    try:
        return _job(plain)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise reader.corrupt(f"{Attr.JOB} does not have the fields of a job") from None


def _plain(job: Job) -> dict[str, Any]:
    plain = {each.name: getattr(job, each.name) for each in fields(job)}
    plain |= {name: _millis(plain[name]) for name in _TIMES}
    plain |= {
        name: [[seen.task_id, _millis(seen.dead_at), seen.attempts] for seen in plain[name]]
        for name in _SEEN
    }
    return plain


def _job(plain: Mapping[str, Any]) -> Job:
    read = {each.name: plain[each.name] for each in fields(Job)}
    read |= {name: None if read[name] is None else from_millis(read[name]) for name in _TIMES}
    read |= {
        name: tuple(Seen(task_id=i, dead_at=from_millis(d), attempts=n) for i, d, n in read[name])
        for name in _SEEN
    }
    return Job(**{**read, "state": JobState(read["state"]), "refusals": tuple(read["refusals"])})


def _millis(time: datetime | None) -> int | None:
    return None if time is None else to_millis(time)
