"""The contract of settling: a claim ends in one durable resolution, visible whole or not at all."""

from contextlib import suppress
from datetime import timedelta

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Failure, Status
from rdq_core.errors import LeaseLost
from rdq_core.testing.contract.bench import RETENTION, Bench
from rdq_core.testing.contract.factories import a_result, an_error, noise

RESULTS = {
    "nothing": (None, None),
    "empty": (b"", "application/octet-stream"),
    "empty text": (b"", "text/plain"),
    "every byte value": (bytes(range(256)), "application/octet-stream"),
    "beside the row's limit": (noise(400), "application/octet-stream"),
    "100 KiB": (noise(100 * 1024), "image/x-odd; q=1"),
    "1 MiB of text": (b"all work and no play. " * 47_662, "text/plain"),
}


class OutcomeContract:
    """Every way to settle a claim: which fields the task then has, and which it doesn't."""

    def test_a_success_ends_the_task_with_its_result_and_the_attempt_on_record(
        self, bench: Bench
    ) -> None:
        claim = bench.claimed()
        bench.clock.advance("5s")

        bench.complete(claim, a_result(b'{"receipt": 9}'))

        stored = bench.task(claim.task.id)
        assert (stored.status, stored.completed_at, stored.failure) == (
            Status.SUCCEEDED,
            bench.now,
            None,
        )
        assert (stored.result, stored.result_content_type) == (
            b'{"receipt": 9}',
            "application/json",
        )
        assert (stored.lease_expires_at, stored.next_attempt_at, stored.attempt_count) == (
            None,
            None,
            1,
        )
        (success,) = stored.attempts
        assert (success.attempt_no, success.outcome, success.error) == (1, Outcome.SUCCESS, None)
        assert (success.started_at, success.finished_at) == (claim.claimed_at, bench.now)
        assert (success.worker, success.fencing_token) == ("host:1", claim.fencing_token)

    @pytest.mark.parametrize("result", RESULTS)
    def test_a_result_comes_back_byte_for_byte_and_none_differs_from_an_empty_one(
        self, bench: Bench, result: str
    ) -> None:
        content, content_type = RESULTS[result]
        claim = bench.claimed()

        bench.complete(claim, a_result(content, content_type))

        stored = bench.task(claim.task.id)
        assert (stored.result, stored.result_content_type) == (content, content_type)

    def test_a_success_after_failures_is_the_last_of_the_history(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim, error=an_error("first"))
        claim = bench.reclaim(bench.claim(claim.task.id))

        bench.complete(claim, unknown={"region": "eu"})

        stored = bench.task(claim.task.id)
        assert [attempt.outcome for attempt in stored.attempts] == [
            Outcome.RETRYABLE_FAILURE,
            Outcome.LEASE_EXPIRED,
            Outcome.SUCCESS,
        ]
        assert (bench.numbers(claim.task.id), stored.attempt_count) == ([1, 2, 3], 3)
        assert stored.attempts[-1].unknown == {"region": "eu"}
        assert (stored.failure, stored.result) == (None, b'"done"')

    def test_a_failure_is_on_record_and_the_task_waits(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.clock.advance("5s")

        attempt = bench.reschedule(
            claim, after=timedelta(seconds=90), error=an_error("503", code="bank_down")
        )

        stored = bench.task(claim.task.id)
        assert (stored.status, stored.next_attempt_at) == (
            Status.PENDING,
            bench.now + timedelta(seconds=90),
        )
        assert (stored.lease_expires_at, stored.completed_at, stored.attempt_count) == (
            None,
            None,
            1,
        )
        assert stored.failure == Failure("bank_down", "requests.HTTPError", "503")
        assert list(stored.attempts) == [attempt]
        assert bench.candidates() == []
        assert [each.due_at for each in bench.candidates(ahead=timedelta(seconds=90))] == [
            stored.next_attempt_at
        ]

    def test_a_failure_comes_back_whole(self, bench: Bench) -> None:
        error = an_error(
            "Grüße\n" * 600,
            detail={"list": [1, 2.5, None], "deep": {"x": "ü"}},
            stack='  File "a.py", line 3\n' * 2500,
            unknown={"new": [1]},
        )
        claim = bench.claimed()

        attempt = bench.reschedule(
            claim, error=error, unknown={"more": {"a": 1}}, worker="lambda:fn/" + "1" * 200
        )

        assert list(bench.task(claim.task.id).attempts) == [attempt]

    def test_a_dead_task_rests_with_its_reason(self, bench: Bench) -> None:
        claim = bench.claimed(handler_version="v3", payload=noise(2345))
        bench.clock.advance("5s")

        attempt = bench.dead_letter(
            claim, outcome=Outcome.PERMANENT_FAILURE, error=an_error("no such card", code="gone")
        )

        stored, entry = bench.task(claim.task.id), bench.entry(claim.task.id)
        assert (stored.status, stored.completed_at, stored.attempt_count) == (
            Status.DEAD,
            bench.now,
            1,
        )
        assert (stored.next_attempt_at, stored.lease_expires_at) == (None, None)
        assert (stored.failure, list(stored.attempts)) == (
            Failure("gone", "requests.HTTPError", "no such card"),
            [attempt],
        )
        assert (entry.queue, entry.handler_ref, entry.handler_version) == (
            "billing",
            "charge-card",
            "v3",
        )
        assert (entry.code, entry.type, entry.message) == (
            "gone",
            "requests.HTTPError",
            "no such card",
        )
        assert (entry.dead_at, entry.created_at) == (bench.now, stored.created_at)
        assert (entry.attempts, entry.redrive_count, entry.payload_size) == (1, 0, 2345)
        assert entry.fingerprint == "v1:0123456789ab"
        assert bench.dead_entries() == [entry]

    def test_a_budget_found_spent_is_a_reason_and_no_attempt(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim)

        bench.dead_letter_unrun(bench.claim(claim.task.id))

        stored, entry = bench.task(claim.task.id), bench.entry(claim.task.id)
        assert (stored.status, stored.attempt_count, bench.numbers(stored.id)) == (
            Status.DEAD,
            1,
            [1],
        )
        assert stored.failure is not None
        assert stored.failure.code == entry.code == "task_attempts_exhausted"
        assert entry.attempts == 1

    def test_a_release_spends_nothing_and_records_nothing(self, bench: Bench) -> None:
        claim = bench.claimed()

        bench.release(claim, after=timedelta(seconds=5))

        stored = bench.task(claim.task.id)
        assert (stored.status, stored.next_attempt_at) == (
            Status.PENDING,
            bench.now + timedelta(seconds=5),
        )
        assert (stored.attempt_count, list(stored.attempts), stored.lease_expires_at) == (
            0,
            [],
            None,
        )
        assert stored.failure is not None
        assert stored.failure.code == "worker_shutdown"
        bench.clock.advance("5s")
        assert bench.claim(stored.id).attempt_no == 1

    def test_a_released_task_keeps_what_it_had_spent_before(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim)

        bench.release(bench.claim(claim.task.id))

        assert (bench.task(claim.task.id).attempt_count, bench.numbers(claim.task.id)) == (1, [1])

    @pytest.mark.parametrize("first", ["complete", "reschedule", "dead_letter", "release"])
    def test_a_claim_is_settled_once(self, bench: Bench, first: str) -> None:
        """Settling the same way again may be answered as done; another way is lost.

        Neither changes anything.
        """
        claim = bench.claimed()
        getattr(bench, first)(claim)
        before = bench.everything(claim.task.id)

        for other in {"complete", "reschedule", "dead_letter", "release", "heartbeat"} - {first}:
            with pytest.raises(LeaseLost):
                getattr(bench, other)(claim)
        with suppress(LeaseLost):
            getattr(bench, first)(claim)

        assert bench.everything(claim.task.id) == before

    def test_a_long_life_is_recorded_whole(self, bench: Bench) -> None:
        claim = bench.claimed()
        given = []
        for number in range(1, 31):
            bench.clock.advance("1s")
            given.append(bench.reschedule(claim, error=an_error(f"failure {number}")))
            claim = bench.claim(claim.task.id)
        bench.complete(claim)

        stored = bench.task(claim.task.id)
        assert list(stored.attempts[:-1]) == given
        assert (bench.numbers(stored.id), stored.attempt_count) == (list(range(1, 32)), 31)


class RetentionContract:
    """An ended task stays for its retention and no longer, whether or not TTL has removed it
    yet.
    """

    @pytest.mark.parametrize("end", ["succeeded", "cancelled", "dead"])
    def test_an_ended_task_is_there_to_the_last_second_and_then_absent_everywhere(
        self, bench: Bench, end: str
    ) -> None:
        task_id = {
            "succeeded": lambda: bench.succeeded().id,
            "cancelled": lambda: bench.cancel(bench.submit().id).id,
            "dead": lambda: bench.dead(keep=RETENTION).id,
        }[end]()

        bench.clock.advance(RETENTION - timedelta(seconds=1))
        assert bench.task(task_id).status.is_terminal

        bench.clock.advance("1s")
        assert bench.store.get(task_id) is None
        assert bench.store.dead_entry(task_id) is None
        assert (bench.dead_entries(), bench.store.counts("billing").dead) == ([], 0)

    def test_a_dead_task_without_an_end_stays(self, bench: Bench) -> None:
        task = bench.dead()

        bench.clock.advance(timedelta(days=3650))

        assert bench.task(task.id).status is Status.DEAD
        assert [entry.task_id for entry in bench.dead_entries()] == [task.id]

    def test_waiting_work_never_expires(self, bench: Bench) -> None:
        task = bench.submit(payload=noise(3000), next_attempt_at=bench.now + timedelta(days=365))

        bench.clock.advance(timedelta(days=365))

        assert bench.store.load(bench.claim(task.id)).payload == noise(3000)

    def test_a_redrive_ends_the_retention_of_the_dead_task(self, bench: Bench) -> None:
        task = bench.dead(keep=RETENTION)
        bench.redrive(task.id)

        bench.clock.advance(2 * RETENTION)

        assert bench.task(task.id).status is Status.PENDING
        bench.complete(bench.claim(task.id))
