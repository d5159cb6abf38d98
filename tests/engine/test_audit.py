"""An operation is on record before it begins, and its end after it."""

import pytest

from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.engine.ports import AuditRecord, Phase
from rdq_core.errors import ConfigConflict, InputInvalid, StoreFailed
from rdq_core.stores.memory_control import MemoryAudit
from rdq_core.testing.clock import NOON, FrozenClock
from tests.engine.world import CountingIds


class Fails(MemoryAudit):
    """A log that stores so many records, and then none."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def append(self, record: AuditRecord) -> None:
        if self.left == 0:
            raise StoreFailed("no answer", may_have_happened=True)
        self.left -= 1
        super().append(record)


def an_auditor(log: MemoryAudit) -> Auditor:
    return Auditor(log, Principal("ann", verified=True), clock=FrozenClock(), ids=CountingIds())


def records(log: MemoryAudit) -> list[AuditRecord]:
    return list(reversed(log.records("billing", since=NOON, before="Z" * 26, limit=9)))


def test_an_intent_stands_before_the_operation_and_its_end_after_it() -> None:
    log = MemoryAudit()

    with an_auditor(log).recorded(
        "queue.set", "billing", reason="a rush", detail={"keys": 2}
    ) as result:
        (intent,) = records(log)
        result["revision"] = 3

    _, done = records(log)
    assert (intent.phase, intent.reason, intent.detail, intent.verified) == (
        Phase.INTENT,
        "a rush",
        {"keys": 2},
        True,
    )
    assert (done.phase, done.detail, done.operation_id) == (Phase.DONE, {"revision": 3}, intent.id)


def test_an_operation_that_fails_is_on_record_as_failed() -> None:
    log = MemoryAudit()

    with pytest.raises(ConfigConflict), an_auditor(log).recorded("queue.set", "billing"):
        raise ConfigConflict("stale")

    assert [(record.phase, record.detail) for record in records(log)] == [
        (Phase.INTENT, {}),
        (Phase.FAILED, {"code": "config_conflict"}),
    ]


def test_without_its_intent_an_operation_is_not_begun() -> None:
    begun = []
    with pytest.raises(StoreFailed), an_auditor(Fails(after=0)).recorded("queue.set", "billing"):
        begun.append(True)

    assert begun == []


def test_when_the_end_cannot_be_recorded_the_error_says_that_the_operation_was_done() -> None:
    with (
        pytest.raises(StoreFailed) as failed,
        an_auditor(Fails(after=1)).recorded("queue.set", "billing"),
    ):
        pass

    assert "was done all the same" in str(failed.value.hint)


def test_an_operation_s_own_error_is_not_hidden_by_a_log_that_fails() -> None:
    with pytest.raises(ConfigConflict), an_auditor(Fails(after=1)).recorded("queue.set", "billing"):
        raise ConfigConflict("stale")


def test_a_reason_that_is_too_long_is_refused_before_anything_is_written() -> None:
    log = MemoryAudit()

    with (
        pytest.raises(InputInvalid, match="reason"),
        an_auditor(log).recorded("queue.set", "billing", reason="x" * 1025),
    ):
        pass

    assert records(log) == []
