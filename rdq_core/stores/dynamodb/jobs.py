"""Bulk operations in the control table: one partition of those that are open, one of those that
have ended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rdq_core.domain.job import Job
from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.expressions import HAS_NEVER_ENDED, IS_NEW_JOB, JOB_IS_AS_READ, all_of
from rdq_core.stores.dynamodb.job_items import job_item, read_job, readable
from rdq_core.stores.dynamodb.schema import ENDED_JOBS, OPEN_JOBS, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, conditioned
from rdq_core.stores.dynamodb.values import Item, Value, number, text


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
            # Our own, of which the answer was lost: others may have gone on with it, or brought it
            # to its end.
            there = _readable(row for row in refused.rows.values() if row)
            if not any(each.continues(job) for each in there):
                raise StoreFailed(
                    f"job {job.id} is there already", may_have_happened=False
                ) from None

    def get(self, job_id: str) -> Job | None:
        """See `JobStore.get`. A job moves in one step, so one that isn't open any more has ended."""
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
            return refused.row == item  # then it is our own, and only its answer was lost
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
            if refused.row is not None:  # else it was moved already
                raise StoreFailed(
                    f"job {job.id} has changed meanwhile", may_have_happened=False
                ) from None

    def _items(self, partition: str, *, forward: bool) -> Iterator[Item]:
        request = {
            "TableName": self._table,
            "KeyConditionExpression": f"{Attr.PK.alias} = :partition",
            "ScanIndexForward": forward,
            "ConsistentRead": True,
        }
        return self._sender.query_all(request, {":partition": text(partition)})


def _readable(items: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
    return (job for job in map(readable, items) if job is not None)


def _open(job_id: str) -> Item:
    return {Attr.PK: text(OPEN_JOBS), Attr.SK: text(job_id)}


def _ended(job_id: str) -> Item:
    return {Attr.PK: text(ENDED_JOBS), Attr.SK: text(job_id)}


def _as_read(job: Job) -> dict[str, Value]:
    return {":seen_revision": number(job.revision)}
