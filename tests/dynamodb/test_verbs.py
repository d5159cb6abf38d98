"""Every verb once, on both engines: what is true afterwards, by what the store reads back."""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.domain.task import Failure, Status
from rdq_core.errors import LeaseLost, TaskConflict, TaskNotFound
from tests.dynamodb.world import (
    FAILURE,
    LEASE,
    QUEUE,
    SHARDS,
    TASK_ID,
    World,
    a_failed_attempt,
    a_task,
)

HOUR = timedelta(hours=1)


def test_a_submitted_task_reads_back_as_it_was_given(anywhere: World) -> None:
    given: dict[str, Any] = {
        "payload": bytes(range(256)),
        "payload_content_type": "application/json",
        "headers": {"traceparent": "00-é"},
        "handler_version": "v3",
        "target": "order:1",
        "requested_by": "alice",
        "concurrency_key": "customer-1",
        "unknown": {"later": [1, 2.5, None, {"é": "\ud800"}]},
    }
    anywhere.submit(**given)
    read = anywhere.got()
    assert {name: getattr(read, name) for name in given} == given
    assert (read.status, read.attempt_count, read.next_attempt_at) == (
        Status.PENDING,
        0,
        anywhere.now,
    )


def test_a_claim_leases_the_task_and_raises_the_fence(anywhere: World) -> None:
    anywhere.submit(payload=b"x")
    seen = anywhere.candidate()
    claim = anywhere.store.claim(seen, anywhere.grant("mine"))
    assert claim is not None
    assert (claim.token, claim.fencing_token) == ("mine", seen.fencing_token + 1)
    assert (claim.task.status, claim.lease_expires_at) == (Status.IN_FLIGHT, anywhere.now + LEASE)
    assert anywhere.store.load(claim).payload == b"x"


def test_a_second_claim_by_the_same_candidate_finds_somebody_faster(anywhere: World) -> None:
    anywhere.submit()
    seen = anywhere.candidate()
    assert anywhere.store.claim(seen, anywhere.grant()) is not None
    assert anywhere.store.claim(seen, anywhere.grant()) is None


def test_a_success_is_the_last_attempt_with_its_result(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.complete(
        claim,
        anywhere.succeeded(claim),
        Result(content=b"done", content_type="text/plain"),
        now=anywhere.now,
        expires_at=anywhere.now + HOUR,
    )
    task = anywhere.got()
    assert (task.status, task.result, task.result_content_type) == (
        Status.SUCCEEDED,
        b"done",
        "text/plain",
    )
    assert task.attempts == (anywhere.succeeded(claim),)
    assert (task.attempt_count, task.completed_at, task.failure) == (1, anywhere.now, None)
    assert anywhere.due(anywhere.now + HOUR) == []


def test_an_empty_result_is_not_a_missing_one(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.complete(
        claim, anywhere.succeeded(claim), Result(content=b""), now=anywhere.now, expires_at=None
    )
    assert anywhere.got().result == b""


def test_a_rescheduled_task_waits_with_its_failure_on_record(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.reschedule(claim, anywhere.failed(claim), FAILURE, due_at=anywhere.now + HOUR)
    task = anywhere.got()
    assert (task.status, task.next_attempt_at, task.attempt_count) == (
        Status.PENDING,
        anywhere.now + HOUR,
        1,
    )
    assert (task.failure, task.attempts) == (FAILURE, (anywhere.failed(claim),))
    assert anywhere.due() == []


def test_a_released_task_has_spent_nothing(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.release(claim, Failure("worker_shutdown"), due_at=anywhere.now)
    task = anywhere.got()
    assert (task.status, task.attempt_count, task.attempts) == (Status.PENDING, 0, ())
    assert task.failure is not None
    assert task.failure.code == "worker_shutdown"
    assert anywhere.claim().task.failure is None


def test_a_dead_task_has_an_entry_with_its_reason(anywhere: World) -> None:
    claim = anywhere.dead(payload=b"12345")
    task = anywhere.got()
    entry = anywhere.store.dead_entry(TASK_ID)
    assert (task.status, task.failure, task.attempts) == (
        Status.DEAD,
        FAILURE,
        (anywhere.failed(claim),),
    )
    assert entry is not None
    assert (entry.dead_at, entry.code, entry.type, entry.message) == (
        anywhere.now,
        "task_failed",
        "TimeoutError",
        "no answer",
    )
    assert (entry.attempts, entry.payload_size, entry.queue) == (1, 5, QUEUE)
    assert list(anywhere.store.dead(QUEUE, limit=10).items) == [entry]


def test_a_budget_found_spent_is_a_reason_and_no_attempt(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.dead_letter(
        claim,
        None,
        Failure("task_attempts_exhausted"),
        now=anywhere.now,
        fingerprint="v1:abc",
        expires_at=None,
    )
    task = anywhere.got()
    assert (task.attempts, task.attempt_count) == ((), 0)
    assert task.failure is not None
    assert task.failure.type == "rdq.MaxAttemptsExceeded"


def test_a_lapsed_lease_is_taken_over_with_the_lost_attempt_on_record(anywhere: World) -> None:
    first = anywhere.claimed()
    lapsed = anywhere.lapse()
    second = anywhere.store.reclaim(lapsed, anywhere.lost(lapsed), anywhere.grant())
    assert second is not None
    assert (second.fencing_token, second.attempt_no) == (first.fencing_token + 1, 2)
    assert anywhere.got().attempts == (anywhere.lost(lapsed),)
    with pytest.raises(LeaseLost):
        anywhere.store.complete(
            first, anywhere.succeeded(first), Result(), now=anywhere.now, expires_at=None
        )


def test_a_lapsed_lease_that_spent_the_budget_ends_in_the_dlq(anywhere: World) -> None:
    anywhere.claimed()
    lapsed = anywhere.lapse()
    assert anywhere.store.dead_letter_lapsed(
        lapsed,
        anywhere.lost(lapsed),
        Failure("task_lease_expired"),
        anywhere.grant(),
        fingerprint="v1:a",
        expires_at=None,
    )
    task = anywhere.got()
    assert (task.status, [each.outcome for each in task.attempts]) == (
        Status.DEAD,
        [Outcome.LEASE_EXPIRED],
    )


def test_a_live_lease_is_not_lapsed(anywhere: World) -> None:
    claim = anywhere.claimed()
    seen = anywhere.candidate(until=claim.lease_expires_at)
    assert anywhere.store.lapsed(seen, now=anywhere.now) is None


def test_a_heartbeat_holds_the_claim_for_longer_and_never_for_less(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.store.heartbeat(claim, anywhere.now + HOUR)
    anywhere.store.heartbeat(claim, anywhere.now + LEASE)
    assert anywhere.got().lease_expires_at == anywhere.now + HOUR


def test_a_late_outcome_counts_until_somebody_reclaims(anywhere: World) -> None:
    claim = anywhere.claimed()
    anywhere.clock.advance(LEASE * 3)
    anywhere.store.complete(
        claim, anywhere.succeeded(claim), Result(), now=anywhere.now, expires_at=None
    )
    assert anywhere.got().status is Status.SUCCEEDED


def test_a_cancelled_task_ends_and_its_holder_loses_the_lease(anywhere: World) -> None:
    claim = anywhere.claimed(payload=b"x")
    task = anywhere.store.cancel(
        TASK_ID, now=anywhere.now, op_id="op-1", expires_at=anywhere.now + HOUR
    )
    assert (task.status, task.payload, task) == (Status.CANCELLED, b"x", anywhere.got())
    with pytest.raises(LeaseLost):
        anywhere.store.heartbeat(claim, anywhere.now + HOUR)
    with pytest.raises(TaskConflict, match="CANCELLED"):
        anywhere.store.cancel(TASK_ID, now=anywhere.now, op_id="op-2", expires_at=None)


def test_a_redriven_task_is_due_with_a_full_budget_and_its_history(anywhere: World) -> None:
    first = anywhere.dead()
    entry = anywhere.store.dead_entry(TASK_ID)
    assert entry is not None
    anywhere.clock.advance("5s")
    task = anywhere.store.redrive(entry, NO_EDIT, now=anywhere.now, op_id="op-1", shards=SHARDS)
    assert (task.status, task.attempt_count, task.redrive_count) == (Status.PENDING, 0, 1)
    assert (task, task.attempts) == (anywhere.got(), (anywhere.failed(first),))
    assert anywhere.store.dead_entry(TASK_ID) is None
    assert anywhere.claim().attempt_no == 2


def test_a_redrive_may_change_ref_version_and_payload(anywhere: World) -> None:
    anywhere.dead(payload=b"bad", handler_version="v1", headers={"a": "b"})
    entry = anywhere.store.dead_entry(TASK_ID)
    assert entry is not None
    edit = Edit(handler_ref="mended", unpin=True, payload=b"good" * 500)
    task = anywhere.store.redrive(entry, edit, now=anywhere.now, op_id="op-1", shards=SHARDS)
    assert (task.handler_ref, task.handler_version, task.payload) == ("mended", None, b"good" * 500)
    assert (anywhere.got(), task.headers) == (task, {"a": "b"})


def test_a_purged_task_leaves_nothing(anywhere: World) -> None:
    anywhere.dead(payload=b"x" * 5000)
    entry = anywhere.store.dead_entry(TASK_ID)
    assert entry is not None
    anywhere.store.purge(entry, now=anywhere.now, op_id="op-1")
    assert anywhere.everything() == {"rdq-tasks": {}, "rdq-dlq": {}}
    with pytest.raises(TaskNotFound):
        anywhere.store.purge(entry, now=anywhere.now, op_id="op-2")


def test_a_repeated_submit_gives_the_stored_task_and_changes_nothing(anywhere: World) -> None:
    anywhere.claimed(payload=b"first")
    before = anywhere.everything()
    again = anywhere.store.submit(a_task(payload=b"second" * 400), shards=SHARDS)
    assert (again.created, again.task.payload, again.task.status) == (
        False,
        b"first",
        Status.IN_FLIGHT,
    )
    assert anywhere.everything() == before


def test_an_id_of_another_queue_is_a_conflict(anywhere: World) -> None:
    anywhere.submit()
    with pytest.raises(TaskConflict, match=r"payments\.charge"):
        anywhere.store.submit(a_task(queue="email"), shards=SHARDS)


def test_an_id_is_free_again_when_its_retention_is_over(anywhere: World) -> None:
    old = anywhere.dead(expires_at=anywhere.now + HOUR)
    anywhere.clock.advance("1h")
    assert (anywhere.store.get(TASK_ID), anywhere.store.dead_entry(TASK_ID)) == (None, None)
    assert list(anywhere.store.dead(QUEUE, limit=10).items) == []
    new = anywhere.store.submit(a_task(queue="email"), shards=SHARDS)
    assert (new.created, anywhere.got().attempts) == (True, ())
    assert anywhere.due(queue="email")[0].fencing_token > old.fencing_token


def test_failures_before_the_submit_come_first_and_spend_nothing(anywhere: World) -> None:
    earlier = tuple(a_failed_attempt(number, anywhere.now, None) for number in (1, 2))
    claim = anywhere.claimed(attempts=earlier)
    anywhere.store.reschedule(claim, anywhere.failed(claim), FAILURE, due_at=anywhere.now)
    task = anywhere.got()
    assert (task.attempts, task.attempt_count) == ((*earlier, anywhere.failed(claim)), 1)


def test_counts_tell_what_waits_runs_and_is_dead(anywhere: World) -> None:
    for step in (anywhere.submit, anywhere.submit, anywhere.claimed, anywhere.dead):
        step(anywhere.ids.task_id())
    counts = anywhere.store.counts(QUEUE)
    assert (counts.pending, counts.in_flight, counts.dead) == (2, 1, 1)
    assert (counts.oldest_due_at, counts.exact) == (anywhere.now, True)
