"""Task objects: what their fields become, and what of an envelope is ignored."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.envelope import to_envelope
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid
from rdq_core.ops.lines import draft_of_object
from tests.engine.world import QUEUE, World

NOW = datetime(2026, 7, 20, 14, 3, 22, 117000, tzinfo=UTC)
EMPTY = Draft(queue="", handler_ref="", payload=b"")
TASK = Task(
    id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
    queue=QUEUE,
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
        Attempt(attempt_no=1, started_at=NOW, finished_at=NOW, outcome=Outcome.LEASE_EXPIRED),
    ),
    unknown={"x_new": {"deep": [1]}},
)


def stored(data: dict[str, Any], template: Draft = EMPTY) -> Task:
    return World().parts.submitter().check(draft_of_object(data, template))[0]


def test_what_a_submitter_says_about_the_lifecycle_is_ignored() -> None:
    data = {**to_envelope(TASK), "claim_token": "t", "fencing_token": 9, "result": "eA=="}
    task = stored(data)
    assert (task.status, task.attempt_count, task.attempts, task.failure, task.result) == (
        Status.PENDING,
        0,
        (),
        None,
        None,
    )
    assert (task.id, task.payload, task.headers, task.unknown) == (
        TASK.id,
        TASK.payload,
        TASK.headers,
        TASK.unknown,
    )


def test_the_next_attempt_of_an_envelope_is_when_the_task_is_due() -> None:
    later = World().clock.now() + timedelta(hours=2)
    data = to_envelope(replace(TASK, next_attempt_at=later))
    assert stored(data).next_attempt_at == later
    assert stored({**data, "delay": "1h"}).next_attempt_at == later - timedelta(hours=1)


def test_a_time_of_the_line_replaces_the_templates() -> None:
    world = World()
    template = replace(EMPTY, queue=QUEUE, handler_ref="charge", options={"delay": "1h"})
    line = {"payload_text": "x", "run_at": "2026-07-21T00:00:00Z"}
    assert stored(line, template).next_attempt_at == datetime(2026, 7, 21, tzinfo=UTC)
    assert stored({"payload_text": "x"}, template).next_attempt_at == world.clock.now() + timedelta(
        hours=1
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", 5),
        ("id", 5),
        ("headers", "x"),
        ("run_at", 5),
        ("next_attempt_at", "noon"),
        ("delay", 60),
        ("concurrency_key", []),
        ("target", {}),
        ("requested_by", 5),
        ("payload_content_type", 5),
        ("handler_version", 5),
        ("queue", 5),
        ("handler_ref", ["charge"]),
        ("envelope_version", "1"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_field(field: str, value: object) -> None:
    line = {"queue": QUEUE, "handler_ref": "charge", "payload_text": "x", field: value}
    with pytest.raises(InputInvalid) as refusal:
        stored(line)
    assert refusal.value.field == field
