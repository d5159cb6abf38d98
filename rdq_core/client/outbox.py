"""An outbox in the application's own DynamoDB table.

It is for writes that can't be in one transaction with their submit.

    application    one write: the record, marked `pending` ───────┐
    application    submit(rdq, record): a task, then the mark ────┤ a crash in between loses neither
    reconciler     repair(rdq): whatever is still pending ────────┘

The mark is the partition key of a sparse index: one query finds the `pending` records, and a
conditional update changes the mark of each one that was submitted or refused. The invariant: a
record leaves `pending` only after its task was stored or refused for good, and a record that has
changed since it was read stays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.engine.submit import Receipt
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed, TaskConflict, Unavailable
from rdq_core.handlers.new_task import NewTask

Record = Mapping[str, Any]
"""A record as the low-level client returns it: `{"order_id": {"S": "17"}, ...}`."""

_REFUSED: Final = (InputInvalid, TaskConflict)
_MOST: Final = 1000
_CLAUSES: Final = {
    (False, False): "",
    (True, False): " AND #order >= :start",
    (False, True): " AND #order < :before",
    (True, True): " AND #order BETWEEN :start AND :before",
}


@dataclass(frozen=True, slots=True)
class OutboxReport:
    """The number of records that one repair processed, by result.

    `overtaken` records were marked or changed by another host or the application in the meantime.
    `kept` ones raised an error and are still pending.
    """

    submitted: int = 0
    refused: int = 0
    overtaken: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The outbox of one table.

    `client` is a low-level DynamoDB client of the application's own. `index` has `mark` as its
    partition key and `order` as its sort key, both text; records without `mark` are not in it, and
    it projects what `task_of` reads. `primary_key` names the table's own key attributes. `task_of`
    returns the task of a record, with a `key` or `id`, so that a record read twice is one task. A
    repair reads the first `limit` records whose `order` is at least `start` and below `before`.
    """

    client: Any
    table: str
    index: str
    primary_key: Sequence[str]
    mark: str
    order: str
    task_of: Callable[[Record], NewTask]
    pending: str = "pending"
    submitted: str = "submitted"
    refused: str = "refused"
    start: str | Callable[[], str] | None = None
    before: str | Callable[[], str] | None = None
    limit: int = 100

    def __post_init__(self) -> None:
        marks = (self.pending, self.submitted, self.refused)
        if len(set(marks)) < len(marks):
            raise ConfigInvalid(
                "outbox", "pending, submitted and refused must differ: each is a key of the index"
            )
        if not 1 <= self.limit <= _MOST:
            raise ConfigInvalid("outbox.limit", f"is {self.limit}; accepted: 1 to {_MOST}")

    def submit(self, rdq: Rdq, record: Record) -> Receipt:
        """Submit a record's task and mark the record. The application calls it after its write.

        When this raises, the record stays pending and the next `repair` tries again.
        """
        receipt = self._submit_task(rdq, record)
        self._change_mark(record, self.submitted)
        return receipt

    def repair(self, rdq: Rdq) -> OutboxReport:
        """Submit the tasks of pending records; to be registered as a reconciler.

        Safe on many hosts at once. It reads only one range of the index.

        A record whose task is refused is marked `refused`, so that it no longer takes up the limit.
        A record stays pending when `task_of` raises or the queue is not configured. Neither stops
        the others; the first such error is raised at the end, for `on_error`. A failure of storage
        is raised at once.
        """
        report, first_error = OutboxReport(), None
        for record in self._pending():
            ended, error = self._repair_one(rdq, record)
            report = replace(report, **{ended: getattr(report, ended) + 1})
            first_error = first_error or error
        if first_error is not None:
            first_error.add_note(f"outbox of table {self.table}: {report}")
            raise first_error
        return report

    def _repair_one(self, rdq: Rdq, record: Record) -> tuple[str, Exception | None]:
        """The field of the report that counts this record, and the error that it raised."""
        error: Exception | None = None
        try:
            self._submit_task(rdq, record)
        except (StoreFailed, Unavailable):
            raise
        except _REFUSED as refusal:
            ended, error = "refused", refusal
        # Anything, since `task_of` is the application's code: it must not stop the other records.
        except Exception as failure:  # noqa: BLE001
            return "kept", failure
        else:
            ended = "submitted"
        return ended if self._change_mark(record, getattr(self, ended)) else "overtaken", error

    def _submit_task(self, rdq: Rdq, record: Record) -> Receipt:
        task = self.task_of(record)
        if task.key is None and task.id is None:
            raise ConfigInvalid(
                "outbox.task_of",
                "returns a task without key or id: a record that is read twice would run twice",
            )
        return rdq.submit(task.queue, task.handler_ref, task.payload, **task.options)

    def _pending(self) -> Iterator[Record]:
        request, end = self._query(), _value(self.before)
        left = self.limit
        while left > 0:
            page = self.client.query(**request, Limit=left)
            # BETWEEN includes its end, and DynamoDB allows one condition on the sort key.
            yield from (
                record for record in page["Items"] if end is None or record[self.order]["S"] < end
            )
            left -= len(page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _query(self) -> dict[str, Any]:
        values = {
            ":pending": self.pending,
            ":start": _value(self.start),
            ":before": _value(self.before),
        }
        given = {name: {"S": value} for name, value in values.items() if value is not None}
        clause = _CLAUSES[":start" in given, ":before" in given]
        return {
            "TableName": self.table,
            "IndexName": self.index,
            "KeyConditionExpression": f"#mark = :pending{clause}",
            "ExpressionAttributeNames": {"#mark": self.mark}
            | ({"#order": self.order} if clause else {}),
            "ExpressionAttributeValues": given,
        }

    def _change_mark(self, record: Record, mark: str) -> bool:
        """Change the record's mark. False if the record has changed since it was read."""
        try:
            self.client.update_item(
                TableName=self.table,
                Key={name: record[name] for name in self.primary_key},
                UpdateExpression="SET #mark = :mark",
                ConditionExpression="#mark = :pending AND #order = :seen",
                ExpressionAttributeNames={"#mark": self.mark, "#order": self.order},
                ExpressionAttributeValues={
                    ":mark": {"S": mark},
                    ":pending": {"S": self.pending},
                    ":seen": record[self.order],
                },
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def _value(bound: str | Callable[[], str] | None) -> str | None:
    return bound() if callable(bound) else bound
