"""The audit log in a table of its own: a partition per queue and month, records in order of time.

The invariant: records are only ever added. Nothing here updates or deletes one, and no role of the
templates is allowed to.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rdq_core.domain.ids import first_id, time_of
from rdq_core.engine.ports import AuditRecord, Jitter, Phase, Sleeper
from rdq_core.errors import StoreFailed
from rdq_core.stores.dynamodb.expressions import IS_NOT_RECORDED, all_of
from rdq_core.stores.dynamodb.schema import Attr, Tables
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender
from rdq_core.stores.dynamodb.values import Item, Reader, compact_json, moment, text

_A_DAY: Final = timedelta(days=1)


class DynamoAudit:
    """An `AuditLog` in the audit table. Safe between threads."""

    def __init__(self, client: Any, tables: Tables, *, jitter: Jitter, sleeper: Sleeper) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.audit

    def append(self, record: AuditRecord) -> None:
        """See `AuditLog.append`."""
        item = _item(record)
        try:
            self._sender.put(self._table, item, all_of(IS_NOT_RECORDED), {})
        except ConditionFailed as refused:
            # The same item is our own, and only its answer was lost.
            if refused.row != item:
                raise StoreFailed(
                    f"audit record {record.id} is there already", may_have_happened=False
                ) from None

    def records(
        self, queue: str, *, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        """See `AuditLog.records`. Raises CorruptItem for one that cannot be read."""
        records: list[AuditRecord] = []
        month = _month_of(time_of(before))
        while len(records) < limit and month >= _month_of(since):
            records += self._of_month(queue, month, since, before, limit - len(records))
            month = _month_of(month - _A_DAY)
        return records

    def _of_month(
        self, queue: str, month: datetime, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :partition AND #sk BETWEEN :first AND :before",
            "ScanIndexForward": False,
            "ConsistentRead": True,
        }
        values = {
            ":partition": text(_partition(queue, month)),
            ":first": text(first_id(max(since, month))),
            ":before": text(before),
        }
        records: list[AuditRecord] = []
        while len(records) < limit:
            # One more, because BETWEEN includes `before`, which is left out here.
            page = self._sender.query({**request, "Limit": limit - len(records) + 1}, values)
            records += [_record(item) for item in page["Items"] if item[Attr.SK]["S"] != before]
            if "LastEvaluatedKey" not in page:
                break
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        return records[:limit]


def _month_of(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _partition(queue: str, at: datetime) -> str:
    return f"{queue}#{at.astimezone(UTC):%Y%m}"


def _item(record: AuditRecord) -> Item:
    item: Item = {
        Attr.PK: text(_partition(record.queue, record.at)),
        Attr.SK: text(record.id),
        Attr.OPERATION_ID: text(record.operation_id),
        Attr.RECORDED_AT: moment(record.at),
        Attr.PRINCIPAL: text(record.principal),
        Attr.IS_VERIFIED: {"BOOL": record.verified},
        Attr.OPERATION: text(record.operation),
        Attr.PHASE: text(record.phase),
        Attr.DETAIL: text(compact_json(record.detail).decode()),
    }
    return item if record.reason is None else item | {Attr.REASON: text(record.reason)}


def _record(item: Mapping[str, Any]) -> AuditRecord:
    record_id = str(item[Attr.SK]["S"])
    reader = Reader(item, f"audit record {record_id}")
    return AuditRecord(
        id=record_id,
        operation_id=reader.text(Attr.OPERATION_ID),
        at=reader.moment(Attr.RECORDED_AT),
        principal=reader.text(Attr.PRINCIPAL),
        verified=item.get(Attr.IS_VERIFIED) == {"BOOL": True},
        operation=reader.text(Attr.OPERATION),
        queue=reader.text(Attr.PK).rpartition("#")[0],
        reason=reader.maybe_text(Attr.REASON),
        phase=reader.choice(Attr.PHASE, Phase),
        detail=reader.json_of(
            Attr.DETAIL, reader.text(Attr.DETAIL).encode("utf-8", "surrogatepass")
        ),
    )
