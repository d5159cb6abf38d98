"""An outbox in the application's own DynamoDB table, for submits that can't be part of the
application's transaction.

    application    one write: the record, marked `pending` ───────┐
    application    submit(rdq, record): a task, then the mark ────┤ a crash in between loses neither
    reconciler     repair(rdq): whatever is still pending ────────┘

The mark is the partition key of a sparse index, its values are key ranges of their own: `pending`
records are found by one query, and each one that was looked at is moved on by a compare-and-set.
The invariant: a record leaves `pending` only after its task is stored or was refused for good, and
a record that somebody has changed since it was read stays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.engine.submit import Receipt
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed, TaskConflict, Unavailable
from rdq_core.handlers.new_task import NewTask

Record = Mapping[str, Any]
"""A record as the client gives it: `{"order_id": {"S": "17"}, ...}`."""

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
    """What one repair did, record by record.

    `overtaken` ones were moved on, or changed, by another host or the application meanwhile. `kept`
    ones met an error and are still pending.
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
    makes the task of a record, with a `key` or `id`: one that is met twice must not become two. A
    repair looks at the records in the half-open range from `start` to `before` of `order`, the
    first `limit` of them.
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
        # each of the three is another
        if len({self.pending, self.submitted, self.refused}) < 3:  # noqa: PLR2004
            raise ConfigInvalid(
                "outbox",
                "pending, submitted and refused must differ: each is a key range of its own",
            )
        if not 1 <= self.limit <= _MOST:
            raise ConfigInvalid("outbox.limit", f"is {self.limit}; accepted: 1 to {_MOST}")

    def submit(self, rdq: Rdq, record: Record) -> Receipt:
        """Submit a record's task and mark the record. For the application, once it has written the
        record.

        Whatever this raises, the record stays pending, and a reconciler will try again.
        """
        receipt = rdq.send(self._task(record))
        self._moves_on(record, self.submitted)
        return receipt

    def repair(self, rdq: Rdq) -> OutboxReport:
        """Submit what is still pending: a reconciler, safe on many hosts at once, that reads one
        range and no more.

        A record whose task is refused is marked `refused`, out of the others' way. One of which
        `task_of` makes no task, or whose queue is not configured, stays pending. Neither stops the
        others; the first such error is raised at the end, so that `on_error` hears of it. When
        storage fails, that is raised at once.
        """
        report, first_error = OutboxReport(), None
        for record in self._pending():
            ended, error = self._taken(rdq, record)
            report = replace(report, **{ended: getattr(report, ended) + 1})
            first_error = first_error or error
        if first_error is not None:
            first_error.add_note(f"outbox of table {self.table}: {report}")
            raise first_error
        return report

    def _taken(self, rdq: Rdq, record: Record) -> tuple[str, Exception | None]:
        """What became of one record, as the report names it, and the error that it met."""
        try:
            rdq.send(self._task(record))
        except (StoreFailed, Unavailable):
            raise
        except _REFUSED as refusal:
            return self._moved(record, "refused"), refusal
        # one record's trouble, the application's own code included
        except Exception as error:  # noqa: BLE001
            return "kept", error
        return self._moved(record, "submitted"), None

    def _moved(self, record: Record, ended: str) -> str:
        return ended if self._moves_on(record, getattr(self, ended)) else "overtaken"

    def _task(self, record: Record) -> NewTask:
        task = self.task_of(record)
        if task.key is None and task.id is None:
            raise ConfigInvalid(
                "outbox.task_of",
                "gives a task without key or id: a record met twice would run twice",
            )
        return task

    def _pending(self) -> Iterator[Record]:
        request, end = self._query(), _value(self.before)
        left = self.limit
        while left > 0:
            page = self.client.query(**request, Limit=left)
            # BETWEEN includes its end, and DynamoDB takes one condition on the sort key.
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

    def _moves_on(self, record: Record, mark: str) -> bool:
        """Whether the record, unchanged since it was read, has the mark now."""
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
