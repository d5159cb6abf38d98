import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.envelope import VERSION, from_envelope, to_envelope
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.errors import InputInvalid

NOW = datetime(2026, 7, 20, 14, 3, 22, 117000, tzinfo=UTC)
ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
TASK = Task(
    id=ID,
    queue="payments.charge",
    handler_ref="charge-payment",
    payload=bytes(range(256)),
    payload_content_type="application/x-odd",
    headers={"traceparent": "00-1", "rdq.source": "sqs"},
    status=Status.DEAD,
    attempt_count=1,
    created_at=NOW,
    completed_at=NOW,
    failure=Failure("task_failed", "ValueError", "x"),
    attempts=(
        Attempt(
            attempt_no=1,
            started_at=NOW,
            finished_at=None,
            outcome=Outcome.LEASE_EXPIRED,
            error=AttemptError(type="rdq.LeaseExpired", unknown={"hint": 1}),
            fencing_token=5,
            unknown={"region": "eu"},
        ),
    ),
    unknown={"x_new": {"deep": [1]}},
)


def test_a_task_survives_the_wire() -> None:
    assert from_envelope(json.loads(json.dumps(to_envelope(TASK)))) == TASK


@given(payload=st.binary(max_size=300), key=st.text(max_size=20), count=st.integers(0, 10**6))
def test_any_payload_and_any_unknown_field_survive_the_wire(
    payload: bytes, key: str, count: int
) -> None:
    task = replace(TASK, payload=payload, attempt_count=count, unknown={f"x_{key}": key})
    assert from_envelope(json.loads(json.dumps(to_envelope(task)))) == task


def test_times_have_exactly_three_decimals() -> None:
    data = to_envelope(replace(TASK, created_at=NOW.replace(microsecond=0)))
    assert (data["created_at"], data["completed_at"]) == (
        "2026-07-20T14:03:22.000Z",
        "2026-07-20T14:03:22.117Z",
    )


@pytest.mark.parametrize("version", [0, -1, VERSION + 1, "1", None, True, 1.0])
def test_versions_that_cannot_be_read_are_refused(version: object) -> None:
    with pytest.raises(InputInvalid, match="envelope_version"):
        from_envelope({**to_envelope(TASK), "envelope_version": version})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "nope"),
        ("queue", "Café"),
        ("queue", "a\n"),
        ("handler_ref", ""),
        ("handler_ref", "rdq-x"),
        ("payload", "not base64!"),
        ("payload", 5),
        ("headers", {"a": 1}),
        ("headers", []),
        ("headers", {"rdq.mine": "x"}),
        ("status", "RUNNING"),
        ("attempt_count", -1),
        ("attempt_count", True),
        ("created_at", "2026-07-20"),
        ("created_at", "2026-13-20T00:00:00Z"),
        ("created_at", "2026-07-20T00:00:00"),
        ("attempts", {}),
        ("attempts", [1]),
        ("failure", "x"),
    ],
)
def test_a_field_that_is_wrong_is_named(field: str, value: Any) -> None:
    with pytest.raises(InputInvalid) as refusal:
        from_envelope({**to_envelope(TASK), field: value})
    assert refusal.value.field.startswith(field)
