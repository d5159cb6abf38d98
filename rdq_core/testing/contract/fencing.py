"""The contract of fencing: a caller with a stale token changes nothing, whatever it calls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Status
from rdq_core.errors import LeaseLost, TaskConflict, TaskNotFound
from rdq_core.testing.contract.bench import Bench, side_by_side
from rdq_core.testing.contract.factories import a_grant, a_lapse, a_result, noise, under_token

BIG: Final = 3000

HOLDERS: Final[dict[str, Callable[[Bench, Claim], object]]] = {
    "heartbeat": lambda bench, claim: bench.heartbeat(claim),
    "complete": lambda bench, claim: bench.complete(claim),
    "complete with a large result": lambda bench, claim: bench.complete(
        claim, a_result(noise(BIG))
    ),
    "reschedule": lambda bench, claim: bench.reschedule(claim),
    "dead-letter": lambda bench, claim: bench.dead_letter(claim),
    "dead-letter for a while": lambda bench, claim: bench.dead_letter(
        claim, keep=timedelta(hours=1)
    ),
    "dead-letter unrun": lambda bench, claim: bench.dead_letter_unrun(claim),
    "release": lambda bench, claim: bench.release(claim),
    "adopt": lambda bench, claim: bench.adopt(claim),
}
"""The verbs that the holder of a claim calls."""

TAKERS: Final[dict[str, Callable[[Bench, Claim], object]]] = {
    "reclaim": lambda bench, claim: bench.store.reclaim(claim, a_lapse(claim), a_grant(bench.now)),
    "dead-letter a lapsed one": lambda bench, claim: bench.dead_letter_lapsed(claim),
    "release a lapsed one": lambda bench, claim: bench.release_lapsed(claim),
}
"""The verbs for a claim that was seen to lapse. They name its token, and lose without an error."""

VERBS: Final = (*HOLDERS, *TAKERS)

MALFORMED: Final = {
    "empty": "",
    "a space": " ",
    "not ASCII": "tökén",
    "a lone surrogate": "\ud800",
    "a NUL": "\0",
    "huge": "x" * 5000,
    "another type's text": "None",
}


class FenceContract:
    """Take a snapshot, call every verb with a stale token, compare."""

    def test_a_superseded_token_changes_nothing(self, bench: Bench) -> None:
        old = bench.claimed(payload=noise(BIG))
        bench.reclaim(old)
        unchanged(bench, old)

    def test_a_superseded_token_changes_nothing_when_the_new_lease_has_lapsed_too(
        self, bench: Bench
    ) -> None:
        old = bench.claimed()
        bench.lapse(bench.reclaim(old))
        unchanged(bench, old)

    def test_a_made_up_token_changes_nothing(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.lapse(claim)
        unchanged(bench, under_token(claim, "unused-token"))

    @pytest.mark.parametrize("malformed", MALFORMED)
    def test_a_malformed_token_is_a_stale_one(self, bench: Bench, malformed: str) -> None:
        claim = bench.claimed()
        bench.lapse(claim)
        unchanged(bench, under_token(claim, MALFORMED[malformed]))

    @pytest.mark.parametrize("end", ["reschedule", "release", "complete", "dead_letter"])
    def test_a_claim_that_was_settled_by_another_verb_changes_nothing(
        self, bench: Bench, end: str
    ) -> None:
        claim = bench.claimed()
        bench.lapse(claim)
        getattr(bench, end)(claim)
        # The same verb again is tried elsewhere: it may be the repetition after an answer that was
        # lost.
        others = [verb for verb in VERBS if not verb.replace("-", "_").startswith(end)]
        unchanged(bench, claim, others)

    def test_the_holder_of_a_cancelled_task_changes_nothing(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.lapse(claim)
        bench.cancel(claim.task.id)
        unchanged(bench, claim)

    def test_the_holder_of_a_life_before_the_redrive_changes_nothing(self, bench: Bench) -> None:
        old = bench.claimed()
        bench.dead_letter(bench.reclaim(old))
        bench.clock.advance("1s")
        bench.redrive(old.task.id)
        unchanged(bench, old)
        bench.lapse(bench.claim(old.task.id))
        unchanged(bench, old)

    def test_the_holder_of_an_earlier_task_of_the_same_id_changes_nothing(
        self, bench: Bench
    ) -> None:
        old = bench.claimed()
        bench.cancel(old.task.id)
        bench.clock.advance("25h")
        bench.submit(id=old.task.id, payload=noise(BIG))
        bench.lapse(bench.claim(old.task.id))
        unchanged(bench, old)

    def test_a_task_that_is_gone_is_not_made_again(self, bench: Bench) -> None:
        old = bench.claimed()
        bench.dead_letter(bench.reclaim(old))
        bench.purge(old.task.id)

        for verb in VERBS:
            refuses(bench, verb, old)

        assert bench.store.get(old.task.id) is None
        assert (bench.candidates(ahead=timedelta(days=400)), bench.dead_entries()) == ([], [])

    def test_the_present_holder_is_not_disturbed_by_any_of_them(self, bench: Bench) -> None:
        old = bench.claimed(payload=noise(BIG))
        present = bench.reclaim(old)

        for verb in HOLDERS:
            refuses(bench, verb, old)

        assert bench.store.load(present).payload == noise(BIG)
        bench.complete(present, a_result(b"the true one"))
        assert (bench.task(old.task.id).result, bench.numbers(old.task.id)) == (
            b"the true one",
            [1, 2],
        )

    def test_the_fence_grows_with_every_claim_through_the_dlq_and_back(self, bench: Bench) -> None:
        claim = bench.claimed()
        fences = [claim.fencing_token]

        for way_out in (bench.reschedule, bench.release, bench.dead_letter):
            way_out(claim)
            if way_out == bench.dead_letter:
                bench.redrive(claim.task.id)
            claim = bench.claim(claim.task.id)
            fences.append(claim.fencing_token)
        fences.append(bench.reclaim(claim).fencing_token)

        assert fences == list(range(fences[0], fences[0] + 5))


class CancelContract:
    """A cancel succeeds or fails as a whole."""

    @pytest.mark.parametrize("status", [Status.PENDING, Status.IN_FLIGHT])
    def test_a_live_task_is_stopped(self, bench: Bench, status: Status) -> None:
        task_id = bench.task_in(status).id
        bench.clock.advance("5s")

        cancelled = bench.cancel(task_id)

        assert cancelled == bench.task(task_id)
        assert (cancelled.status, cancelled.completed_at) == (Status.CANCELLED, bench.now)
        assert (cancelled.next_attempt_at, cancelled.lease_expires_at) == (None, None)
        assert task_id not in {each.task_id for each in bench.candidates(ahead=timedelta(days=400))}

    def test_the_history_of_a_cancelled_task_stays(self, bench: Bench) -> None:
        claim = bench.claimed(payload=noise(BIG))
        bench.reschedule(claim)

        cancelled = bench.cancel(claim.task.id)

        assert ([each.attempt_no for each in cancelled.attempts], cancelled.payload) == (
            [1],
            noise(BIG),
        )

    @pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.DEAD, Status.CANCELLED])
    def test_what_has_ended_is_not_cancelled_and_the_refusal_names_its_state(
        self, bench: Bench, status: Status
    ) -> None:
        task_id = bench.task_in(status).id
        before = bench.everything(task_id)

        with pytest.raises(TaskConflict, match=status.value):
            bench.cancel(task_id)

        assert bench.everything(task_id) == before

    def test_a_task_that_is_not_there_is_not_found(self, bench: Bench) -> None:
        gone = bench.succeeded().id
        bench.clock.advance("25h")

        for task_id in (gone, "0" * 26):
            with pytest.raises(TaskNotFound):
                bench.cancel(task_id)

    @pytest.mark.parametrize("verb", ["complete", "reschedule", "dead_letter", "release"])
    def test_of_canceller_and_holder_one_wins(self, bench: Bench, verb: str) -> None:
        for _ in range(5):
            claim = bench.claimed()
            holder = replace(bench, store=bench.another())

            settled, cancelled = side_by_side(
                [partial(getattr(holder, verb), claim), partial(bench.cancel, claim.task.id)]
            )

            stored = bench.task(claim.task.id)
            if stored.status is Status.CANCELLED and isinstance(settled, LeaseLost):
                assert (bench.numbers(stored.id), stored.result) == ([], None)
            elif stored.status is Status.CANCELLED:
                # The holder was first and left a live task, which may be cancelled as well.
                assert verb in ("reschedule", "release")
                assert not isinstance(cancelled, Exception)
            else:
                assert isinstance(cancelled, Exception)
                assert not isinstance(settled, LeaseLost)


def unchanged(bench: Bench, claim: Claim, verbs: Sequence[str] = VERBS) -> None:
    """Assert that each verb is refused, and that nothing readable or stored has changed."""
    before = bench.everything(claim.task.id)
    for verb in verbs:
        refuses(bench, verb, claim)
        assert bench.raw(claim.task.id) == before["raw"], verb
    assert bench.everything(claim.task.id) == before


def refuses(bench: Bench, verb: str, claim: Claim) -> None:
    """Whether the store refuses the verb under this claim: holders get LeaseLost, takers lose."""
    if verb in TAKERS:
        assert not TAKERS[verb](bench, claim)
    else:
        with pytest.raises(LeaseLost) as lost:
            HOLDERS[verb](bench, claim)
        assert lost.value.task_id == claim.task.id
