from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from rdq_core.domain import lifecycle
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.lease import Grant
from rdq_core.domain.lifecycle import NO_EDIT, NO_RESULT, Edit, Row, Verb, allowed
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.errors import LeaseLost, TaskConflict

NOW = datetime(2026, 7, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
FAILURE = Failure("task_failed", "ValueError", "x")
GRANT = Grant(token="t1", now=NOW, lease_expires_at=NOW + timedelta(seconds=60))


def an_attempt(number: int = 1, outcome: Outcome = Outcome.RETRYABLE_FAILURE) -> Attempt:
    return Attempt(attempt_no=number, started_at=NOW, finished_at=NOW, outcome=outcome)


def a_row(status: Status = Status.PENDING) -> Row:
    """A row that went the shortest way to its status."""
    waiting = lifecycle.submitted(
        Task(id="01ARZ3NDEKTSV4RRFFQ69G5FAV", queue="q", handler_ref="h", created_at=NOW),
        life="l",
        now=NOW,
    )
    held = lifecycle.claimed(waiting, GRANT)
    ways: dict[Status, Callable[[], Row]] = {
        Status.PENDING: lambda: waiting,
        Status.IN_FLIGHT: lambda: held,
        Status.SUCCEEDED: lambda: lifecycle.completed(
            held, "t1", an_attempt(1, Outcome.SUCCESS), NO_RESULT, now=NOW, expires_at=LATER
        ),
        Status.DEAD: lambda: lifecycle.dead_lettered(
            held, "t1", an_attempt(), FAILURE, now=NOW, expires_at=LATER
        ),
        Status.CANCELLED: lambda: lifecycle.cancelled(waiting, now=NOW, expires_at=LATER),
    }
    return ways[status]()


VERBS: dict[Verb, Callable[[Row], Row]] = {
    Verb.CLAIM: lambda row: lifecycle.claimed(
        row, Grant(token="t2", now=LATER, lease_expires_at=LATER)
    ),
    Verb.RECLAIM: lambda row: lifecycle.reclaimed(
        row, "t1", an_attempt(), Grant(token="t2", now=LATER, lease_expires_at=LATER)
    ),
    Verb.ADOPT: lambda row: lifecycle.adopted(
        row, "t1", Grant(token="t2", now=LATER, lease_expires_at=LATER)
    ),
    Verb.HEARTBEAT: lambda row: lifecycle.heartbeat(row, "t1", LATER),
    Verb.COMPLETE: lambda row: lifecycle.completed(
        row, "t1", an_attempt(), NO_RESULT, now=NOW, expires_at=None
    ),
    Verb.RESCHEDULE: lambda row: lifecycle.rescheduled(
        row, "t1", an_attempt(), FAILURE, due_at=LATER
    ),
    Verb.DEAD_LETTER: lambda row: lifecycle.dead_lettered(
        row, "t1", an_attempt(), FAILURE, now=NOW, expires_at=None
    ),
    Verb.RELEASE: lambda row: lifecycle.released(row, "t1", FAILURE, due_at=NOW),
    Verb.CANCEL: lambda row: lifecycle.cancelled(row, now=NOW, expires_at=None),
    Verb.REDRIVE: lambda row: lifecycle.redriven(row, NO_EDIT, now=LATER),
}


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("verb", VERBS)
def test_no_arrow_exists_but_those_of_the_machine(status: Status, verb: Verb) -> None:
    row = a_row(status)
    if verb in allowed(status):
        assert VERBS[verb](row) != row
    else:
        with pytest.raises((TaskConflict, LeaseLost)):
            VERBS[verb](row)


@pytest.mark.parametrize(
    "verb",
    [Verb.ADOPT, Verb.HEARTBEAT, Verb.COMPLETE, Verb.RESCHEDULE, Verb.DEAD_LETTER, Verb.RELEASE],
)
def test_a_superseded_token_changes_nothing(verb: Verb) -> None:
    reclaimed = VERBS[Verb.RECLAIM](a_row(Status.IN_FLIGHT))
    with pytest.raises(LeaseLost):
        VERBS[verb](reclaimed)


@pytest.mark.parametrize("status", Status)
def test_times_and_token_are_set_just_where_they_belong(status: Status) -> None:
    row = a_row(status)
    task = row.task
    assert (task.next_attempt_at is not None) == (status is Status.PENDING)
    assert (task.lease_expires_at is not None) == (status is Status.IN_FLIGHT)
    assert (row.token is not None) == (status is Status.IN_FLIGHT)
    assert (task.completed_at is not None) == status.is_terminal
    assert (row.expires_at is not None) == status.is_terminal


def test_the_fencing_token_starts_at_the_submit_time_and_rises_with_every_claim() -> None:
    row = a_row()
    assert row.fencing_token == int(NOW.timestamp() * 1000)
    held = lifecycle.claimed(row, GRANT)
    again = VERBS[Verb.RECLAIM](held)
    assert [held.fencing_token - row.fencing_token, again.fencing_token - row.fencing_token] == [
        1,
        2,
    ]


def test_a_heartbeat_never_shortens_a_lease() -> None:
    held = a_row(Status.IN_FLIGHT)
    assert lifecycle.heartbeat(held, "t1", NOW).task.lease_expires_at == GRANT.lease_expires_at


def test_a_lease_that_holds_is_not_taken_over() -> None:
    early = Grant(token="t2", now=NOW + timedelta(seconds=59), lease_expires_at=LATER)
    with pytest.raises(LeaseLost):
        lifecycle.reclaimed(a_row(Status.IN_FLIGHT), "t1", an_attempt(), early)


def test_a_claim_clears_the_failure_and_a_release_spends_nothing() -> None:
    waiting = VERBS[Verb.RESCHEDULE](a_row(Status.IN_FLIGHT))
    assert waiting.task.failure == FAILURE
    held = lifecycle.claimed(waiting, Grant(token="t2", now=LATER, lease_expires_at=LATER))
    assert held.task.failure is None
    released = lifecycle.released(held, "t2", FAILURE, due_at=LATER)
    assert (released.task.attempt_count, len(released.task.attempts)) == (1, 1)


def test_a_redrive_gives_a_full_budget_keeps_the_history_and_lifts_the_end() -> None:
    row = lifecycle.redriven(a_row(Status.DEAD), NO_EDIT, now=LATER)
    assert (
        row.task.attempt_count,
        row.task.redrive_count,
        len(row.task.attempts),
        row.expires_at,
    ) == (0, 1, 1, None)


def test_a_redrive_can_change_ref_version_and_payload() -> None:
    edit = Edit(
        handler_ref="other", handler_version="v9", payload=b"new", payload_content_type="text/plain"
    )
    task = lifecycle.redriven(a_row(Status.DEAD), edit, now=LATER).task
    assert (task.handler_ref, task.handler_version, task.payload, task.payload_content_type) == (
        "other",
        "v9",
        b"new",
        "text/plain",
    )


def test_what_a_submitter_claims_about_the_lifecycle_does_not_count() -> None:
    sent = Task(
        id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
        queue="q",
        handler_ref="h",
        created_at=LATER,
        status=Status.DEAD,
        attempt_count=9,
        redrive_count=9,
        result=b"x",
    )
    task = lifecycle.submitted(sent, life="l", now=NOW).task
    assert (task.status, task.attempt_count, task.redrive_count, task.result, task.created_at) == (
        Status.PENDING,
        0,
        0,
        None,
        NOW,
    )
