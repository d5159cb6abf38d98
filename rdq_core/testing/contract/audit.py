"""The contract of audit logs: records are added once, and read newest first."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rdq_core.domain.ids import id_at, last_id
from rdq_core.engine.ports import AuditLog, AuditRecord, Phase
from rdq_core.errors import StoreFailed
from rdq_core.testing.contract.factories import NOW

ALL = NOW - timedelta(days=400)


def a_record(name: str = "a", at: datetime = NOW, **fields: object) -> AuditRecord:
    """An operator's intent in the queue `billing`; records of one moment have ids that differ by
    `name`.
    """
    record = AuditRecord(
        id=id_at(at, name),
        operation_id=id_at(at, name),
        at=at,
        principal="arn:aws:iam::123456789012:user/ann",
        verified=True,
        operation="queue.set",
        queue="billing",
        reason="die Bank ist langsam 🏦",
        phase=Phase.INTENT,
        detail={"retry.max_attempts": [5, 8]},
    )
    return replace(record, **fields)  # type: ignore[arg-type]


def read(
    audit: AuditLog, *, since: datetime = ALL, before: str | None = None, limit: int = 100
) -> list[AuditRecord]:
    """A page of the records of `billing`, newest first."""
    return list(
        audit.records(
            "billing", since=since, before=before or last_id(NOW + timedelta(days=1)), limit=limit
        )
    )


class AuditContract:
    """Records are added once, never changed, and read newest first. Fixture: `audit`."""

    def test_a_record_is_read_as_it_was_written(self, audit: AuditLog) -> None:
        records = [
            a_record("a"),
            a_record("b", reason=None, verified=False, detail={}, phase=Phase.DONE),
        ]
        for record in records:
            audit.append(record)

        assert sorted(read(audit), key=lambda record: record.id) == sorted(
            records, key=lambda record: record.id
        )

    def test_what_was_recorded_is_never_overwritten(self, audit: AuditLog) -> None:
        audit.append(a_record())

        with pytest.raises(StoreFailed, match="is there already"):
            audit.append(a_record(principal="another principal"))

        assert read(audit) == [a_record()]

    def test_a_record_whose_answer_was_lost_is_appended_once(self, audit: AuditLog) -> None:
        audit.append(a_record())
        audit.append(a_record())

        assert read(audit) == [a_record()]

    def test_the_newest_come_first_over_the_turn_of_months(self, audit: AuditLog) -> None:
        days = [0, 3, 25, 60, 200, 340]
        for day in days:
            audit.append(a_record(at=NOW - timedelta(days=day)))

        assert [(NOW - record.at).days for record in read(audit)] == days
        assert [
            (NOW - record.at).days for record in read(audit, since=NOW - timedelta(days=25))
        ] == [0, 3, 25]

    def test_pages_go_on_where_the_last_one_ended(self, audit: AuditLog) -> None:
        for minute in range(7):
            audit.append(a_record(at=NOW - timedelta(minutes=minute)))
            audit.append(a_record(at=NOW - timedelta(days=40, minutes=minute)))

        seen: list[AuditRecord] = []
        while page := read(audit, before=seen[-1].id if seen else None, limit=3):
            seen += page

        assert len({record.id for record in seen}) == len(seen) == 14
        assert [record.id for record in seen] == sorted(
            (record.id for record in seen), reverse=True
        )

    def test_other_queues_have_records_of_their_own(self, audit: AuditLog) -> None:
        audit.append(a_record(queue="email"))
        audit.append(a_record("b", queue="billing.eu"))

        assert read(audit) == []
