"""The contract of hand-overs: a function adopts the claim, or the claim lapses without an
attempt.
"""

from datetime import timedelta

import pytest

from rdq_core.domain.attempt import Code
from rdq_core.domain.lease import Claim, Unreached
from rdq_core.domain.task import Failure, Status
from rdq_core.errors import LeaseLost
from rdq_core.testing.contract.bench import LEASE, Bench, side_by_side
from rdq_core.testing.contract.factories import a_grant


def claimed_again(bench: Bench, task_id: str, *, hands_over: bool = False) -> Claim:
    """The next claim of a task that is due again."""
    claim = bench.store.claim(bench.candidate(task_id), a_grant(bench.now, hands_over=hands_over))
    assert claim is not None
    return claim


class HandOverContract:
    """A handed-over claim is adopted once, or lapses without spending budget."""

    def test_a_claim_says_whether_it_is_handed_over(self, bench: Bench) -> None:
        assert [bench.handed_over().handed_over, bench.claimed().handed_over] == [True, False]

    def test_an_adopter_holds_the_claim_under_the_same_fence(self, bench: Bench) -> None:
        handed = bench.handed_over(payload=b'{"order": 9}')
        bench.clock.advance("20s")

        adopted = bench.adopt(handed)

        assert (adopted.fencing_token, adopted.claimed_at) == (handed.fencing_token, bench.now)
        assert (adopted.handed_over, adopted.attempt_no) == (False, 1)
        assert (
            adopted.lease_expires_at
            == bench.task(handed.task.id).lease_expires_at
            == bench.now + LEASE
        )
        assert bench.store.load(adopted).payload == b'{"order": 9}'
        bench.complete(adopted)
        assert bench.numbers(handed.task.id) == [1]

    def test_of_two_deliveries_one_adopts(self, bench: Bench) -> None:
        handed = bench.handed_over()
        answers = side_by_side([lambda: bench.adopt(handed)] * 4)
        assert sorted(type(answer) is LeaseLost for answer in answers) == [False, True, True, True]

    def test_it_is_adopted_late_until_it_is_taken_back(self, bench: Bench) -> None:
        handed = bench.handed_over()
        lapsed = bench.lapse(handed)
        adopted = bench.adopt(handed)
        assert not bench.release_lapsed(lapsed)
        bench.complete(adopted)

    def test_an_unadopted_claim_lapses_as_a_release_that_spends_nothing(self, bench: Bench) -> None:
        lapsed = bench.lapse(bench.handed_over())
        assert bench.release_lapsed(lapsed, after=timedelta(seconds=4))

        stored = bench.task(lapsed.task.id)
        assert (stored.status, stored.attempt_count, stored.attempts) == (Status.PENDING, 0, ())
        assert stored.next_attempt_at == bench.now + timedelta(seconds=4)
        assert stored.failure is not None
        assert stored.failure.code == Code.UNAVAILABLE
        with pytest.raises(LeaseLost):
            bench.adopt(lapsed)

    def test_how_often_it_was_not_reached_is_known_to_the_next_claim_until_an_adoption(
        self, bench: Bench
    ) -> None:
        lapsed = bench.lapse(bench.handed_over())
        since = bench.now
        bench.release_lapsed(lapsed)
        again = claimed_again(bench, lapsed.task.id, hands_over=True)
        assert (again.handed_over, again.unreached) == (True, Unreached(1, since, unadopted=1))

        bench.release(bench.adopt(again))

        assert claimed_again(bench, lapsed.task.id).unreached is None

    def test_a_release_counts_for_the_next_claim_and_an_attempt_ends_the_count(
        self, bench: Bench
    ) -> None:
        claim, unreached = bench.claimed(), Unreached(3, bench.now)
        failure = Failure(Code.UNAVAILABLE)
        bench.store.release(claim, failure, due_at=bench.now, unreached=unreached)
        again = claimed_again(bench, claim.task.id)
        assert again.unreached == unreached
        bench.reschedule(again)
        assert claimed_again(bench, claim.task.id).unreached is None

    def test_what_was_adopted_lapses_as_an_attempt_and_not_as_a_release(self, bench: Bench) -> None:
        adopted = bench.adopt(bench.handed_over())
        lapsed = bench.lapse(adopted)
        assert not lapsed.handed_over
        assert not bench.release_lapsed(lapsed)
        bench.reclaim(adopted)
        assert bench.task(lapsed.task.id).attempt_count == 1

    def test_a_claim_that_reclaims_a_hand_over_is_not_handed_over(self, bench: Bench) -> None:
        reclaimed = bench.reclaim(bench.handed_over())
        assert not reclaimed.handed_over
        assert not bench.release_lapsed(bench.lapse(reclaimed))
