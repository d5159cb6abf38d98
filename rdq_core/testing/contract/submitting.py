"""The contract of submits: a task reads back as submitted, and a repeated submit changes
nothing.
"""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Submission
from rdq_core.errors import TaskConflict
from rdq_core.testing.contract.bench import Bench, side_by_side
from rdq_core.testing.contract.factories import a_result, a_task, a_task_id, an_error, noise

PAYLOADS = {
    "every byte value": bytes(range(256)),
    "empty": b"",
    "one NUL": b"\0",
    "beside the row's limit": noise(500),
    "1 KiB": noise(1024),
    "100 KiB": noise(100 * 1024),
    "256 KiB": noise(256 * 1024 - 64),
    "1 MiB of text": b'{"line": "all work and no play"}\n' * (1024 * 1024 // 33),
}

ODD_HEADERS = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "empty": "",
    "Überschrift": "Grüße 👩‍🚀 \t\n",
    "long": "x" * 5000,
}

UNKNOWN: dict[str, Any] = {
    "new_field": "text",
    "number": 12345678901234567890,
    "fraction": 0.1,
    "nested": {"list": [1, None, True, {"deep": "ünïcode"}], "empty": {}},
    "nothing": None,
    "not_a_status": "DEAD",
}


class SubmitContract:
    """A submit stores the task once, exactly as given."""

    def test_a_submitted_task_waits_and_is_due(self, bench: Bench) -> None:
        task = a_task(handler_ref="charge-card", handler_version="v3")

        submission = bench.store.submit(task, shards=bench.shards)

        stored = bench.task(task.id)
        assert submission == Submission(stored, created=True)
        assert (stored.status, stored.next_attempt_at, stored.created_at) == (
            Status.PENDING,
            bench.now,
            bench.now,
        )
        assert (stored.handler_ref, stored.handler_version) == ("charge-card", "v3")
        assert (stored.attempt_count, stored.redrive_count, list(stored.attempts)) == (0, 0, [])
        assert (stored.lease_expires_at, stored.completed_at, stored.failure, stored.result) == (
            None,
        ) * 4

    @pytest.mark.parametrize("payload", PAYLOADS)
    def test_a_payload_comes_back_byte_for_byte(self, bench: Bench, payload: str) -> None:
        task = bench.submit(
            payload=PAYLOADS[payload], payload_content_type="application/x-odd; q=1"
        )

        stored = bench.task(task.id)
        loaded = bench.store.load(bench.claim(task.id))

        assert stored.payload == loaded.payload == PAYLOADS[payload]
        assert (
            stored.payload_content_type == loaded.payload_content_type == "application/x-odd; q=1"
        )

    @pytest.mark.parametrize("size", [0, 40, 100 * 1024])
    def test_headers_and_fields_of_a_newer_writer_come_back(self, bench: Bench, size: int) -> None:
        task = bench.submit(payload=noise(size), headers=ODD_HEADERS, unknown=UNKNOWN)

        stored = bench.task(task.id)
        loaded = bench.store.load(bench.claim(task.id))

        assert stored.headers == loaded.headers == ODD_HEADERS
        assert stored.unknown == loaded.unknown == UNKNOWN

    def test_what_a_caller_says_about_the_task_comes_back(self, bench: Bench) -> None:
        said = {
            "concurrency_key": "acct:ä 1",
            "target": "order:88213",
            "requested_by": "ann@example.org",
        }

        task = bench.submit(**said)

        stored = bench.task(task.id)
        assert {name: getattr(stored, name) for name in said} == said
        assert bench.candidate(task.id).concurrency_key == "acct:ä 1"

    @pytest.mark.parametrize("length", [1, 240])
    def test_names_of_every_length_are_stored(self, bench: Bench, length: int) -> None:
        queue, handler_ref = "q" * length, "h" * length

        task = bench.submit(
            queue=queue, handler_ref=handler_ref, payload=noise(600), handler_version="v" * 256
        )

        assert bench.store.load(bench.claim(task.id, queue)).payload == noise(600)
        assert bench.task(task.id).handler_ref == handler_ref

    def test_the_state_that_a_submitter_sends_along_is_ignored(self, bench: Bench) -> None:
        task = bench.submit(
            status=Status.DEAD,
            attempt_count=7,
            redrive_count=3,
            lease_expires_at=bench.now + timedelta(days=1),
            completed_at=bench.now,
            created_at=bench.now - timedelta(days=9),
            result=b"forged",
            result_content_type="text/plain",
        )

        stored = bench.task(task.id)
        assert (stored.status, stored.attempt_count, stored.redrive_count) == (Status.PENDING, 0, 0)
        assert (stored.lease_expires_at, stored.completed_at, stored.created_at) == (
            None,
            None,
            bench.now,
        )
        assert (stored.result, stored.result_content_type) == (None, None)

    def test_failures_before_the_submit_come_first_and_spend_no_budget(self, bench: Bench) -> None:
        given = tuple(a_failure_before(bench, number) for number in (1, 2))

        task = bench.submit(attempts=given)

        assert list(bench.task(task.id).attempts) == list(given)
        claim = bench.claim(task.id)
        assert (claim.task.attempt_count, claim.attempt_no) == (0, 3)
        bench.reschedule(claim)
        assert bench.numbers(task.id) == [1, 2, 3]
        assert bench.task(task.id).attempt_count == 1

    def test_an_attempt_comes_back_whole(self, bench: Bench) -> None:
        error = AttemptError(
            type="häßlich.Fehler",
            message="line one\nline two 👩‍🚀",
            code="card_declined",
            detail={"reason": ["do not honour", 5, None], "x": {"y": 1.5}},
            stack="Traceback\n" + "  frame\n" * 4000,
            unknown={"hint": {"from": "a newer rdq"}},
        )
        given = a_failure_before(
            bench, 1, error=error, unknown={"region": "eu", "n": [1, 2]}, worker="lambda:f/1"
        )

        task = bench.submit(attempts=(given,))

        assert list(bench.task(task.id).attempts) == [given]

    @pytest.mark.parametrize("status", list(Status))
    def test_a_repeated_submit_gives_the_stored_task_and_changes_nothing(
        self, bench: Bench, status: Status
    ) -> None:
        task_id = bench.task_in(status).id
        before = bench.everything(task_id)

        again = bench.store.submit(
            a_task(id=task_id, payload=noise(2000), handler_ref="other"), shards=bench.shards
        )

        assert again == Submission(bench.task(task_id), created=False)
        assert again.task.status is status
        assert bench.everything(task_id) == before

    def test_a_repeated_submit_does_not_make_a_waiting_task_due_earlier(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim, after=timedelta(hours=2))

        again = bench.store.submit(a_task(id=claim.task.id), shards=bench.shards)

        assert again.task.next_attempt_at == bench.now + timedelta(hours=2)
        assert bench.candidates() == []

    @pytest.mark.parametrize("status", list(Status))
    def test_an_id_of_another_queue_is_a_conflict_and_changes_nothing(
        self, bench: Bench, status: Status
    ) -> None:
        task_id = bench.task_in(status).id
        before = bench.everything(task_id)

        with pytest.raises(TaskConflict, match="billing"):
            bench.store.submit(
                a_task(id=task_id, queue="email", payload=noise(2000)), shards=bench.shards
            )

        assert bench.everything(task_id) == before
        assert bench.candidates("email") == []

    def test_of_many_submits_of_one_id_at_once_one_stores(self, bench: Bench) -> None:
        for _ in range(5):
            task_id = a_task_id()
            given = [a_task(id=task_id, payload=noise(2000 + number)) for number in range(8)]
            fellows = [bench.another() for _ in given]

            outcomes = side_by_side(
                [
                    lambda store=store, task=task: store.submit(task, shards=bench.shards)  # type: ignore[misc]
                    for store, task in zip(fellows, given, strict=True)
                ]
            )

            assert sum(outcome.created for outcome in outcomes) == 1  # type: ignore[union-attr]
            winner = next(
                task
                for task, outcome in zip(given, outcomes, strict=True)
                if outcome.created  # type: ignore[union-attr]
            )
            assert bench.task(task_id).payload == winner.payload
            assert {outcome.task.payload for outcome in outcomes} == {winner.payload}  # type: ignore[union-attr]

    def test_a_task_for_later_is_not_proposed_before(self, bench: Bench) -> None:
        task = bench.submit(next_attempt_at=bench.now + timedelta(hours=1))

        assert bench.candidates() == []
        bench.clock.advance("1h")
        assert [each.task_id for each in bench.candidates()] == [task.id]


class ReuseContract:
    """An id that is reused after its retention is a new task. Nothing of the old one is visible."""

    @pytest.mark.parametrize("size", [10, 50_000])
    def test_history_result_and_payload_of_the_old_task_do_not_show(
        self, bench: Bench, size: int
    ) -> None:
        claim = bench.claimed(payload=b"old " * size, headers={"old": "yes"}, unknown={"old": True})
        bench.reschedule(claim, error=an_error("an old failure"))
        bench.complete(bench.claim(claim.task.id), a_result(noise(size)))
        bench.clock.advance("25h")

        new = bench.submit(id=claim.task.id, payload=b"new", handler_ref="new-ref")

        stored = bench.task(new.id)
        assert (stored.payload, stored.handler_ref, stored.headers, stored.unknown) == (
            b"new",
            "new-ref",
            {},
            {},
        )
        assert (list(stored.attempts), stored.attempt_count, stored.result) == ([], 0, None)
        assert (stored.failure, stored.completed_at, stored.created_at) == (None, None, bench.now)
        bench.complete(bench.claim(new.id), a_result(None, None))
        assert (bench.task(new.id).result, bench.numbers(new.id)) == (None, [1])

    def test_the_fence_grows_across_lives(self, bench: Bench) -> None:
        fences = []
        task_id = a_task_id()
        for _ in range(3):
            bench.submit(id=task_id)
            claim = bench.claim(task_id)
            bench.reschedule(claim)
            again = bench.claim(task_id)
            fences += [claim.fencing_token, again.fencing_token]
            bench.complete(again)
            bench.clock.advance("25h")

        assert fences == sorted(set(fences))

    def test_the_new_life_may_be_in_another_queue(self, bench: Bench) -> None:
        old = bench.succeeded()
        bench.clock.advance("25h")

        bench.submit(id=old.id, queue="email")

        assert bench.task(old.id).queue == "email"

    def test_a_dead_task_whose_retention_is_over_leaves_no_entry_to_the_new_one(
        self, bench: Bench
    ) -> None:
        old = bench.dead(keep=timedelta(hours=1))
        bench.clock.advance("2h")
        new = bench.submit(id=old.id)

        assert (
            bench.store.dead_entry(new.id),
            bench.dead_entries(),
            bench.store.counts("billing").dead,
        ) == (
            None,
            [],
            0,
        )
        bench.dead_letter(bench.claim(new.id))
        assert [(entry.task_id, entry.attempts) for entry in bench.dead_entries()] == [(new.id, 1)]
        bench.redrive(new.id)
        assert bench.numbers(new.id) == [1]

    def test_an_old_entry_redrives_nothing_of_the_new_life(self, bench: Bench) -> None:
        old = bench.dead(keep=timedelta(hours=1))
        entry = bench.entry(old.id)
        bench.clock.advance("2h")
        bench.submit(id=old.id)
        bench.dead_letter(bench.claim(old.id))
        before = bench.everything(old.id)

        with pytest.raises(TaskConflict):
            bench.redrive_entry(entry)

        assert bench.everything(old.id) == before

    def test_a_purged_id_begins_anew(self, bench: Bench) -> None:
        old = bench.dead(payload=noise(3000))
        bench.purge(old.id)
        bench.clock.advance("1h")

        new = bench.submit(id=old.id, payload=b"new")

        assert (bench.task(new.id).payload, bench.numbers(new.id)) == (b"new", [])


def a_failure_before(bench: Bench, number: int, **fields: Any) -> Attempt:
    """A failure from before the submit, in a guard or an SQS consumer."""
    began = bench.now - timedelta(seconds=10 - number)
    usual = {
        "attempt_no": number,
        "started_at": began,
        "finished_at": began + timedelta(milliseconds=250),
        "outcome": Outcome.RETRYABLE_FAILURE,
        "error": an_error(f"failure {number}"),
        "worker": "host:9",
        "fencing_token": None,
    }
    return Attempt(**{**usual, **fields})
