"""The contract of claims: one claimant wins, and a lapsed lease is taken over and recorded."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import NO_RESULT
from rdq_core.domain.task import Status
from rdq_core.engine.ports import TaskStore
from rdq_core.errors import LeaseLost
from rdq_core.testing.contract.bench import LEASE, Bench, pages, side_by_side
from rdq_core.testing.contract.factories import (
    a_failed,
    a_failure,
    a_grant,
    a_lapse,
    a_success,
    noise,
)

SECOND = timedelta(seconds=1)


class CandidateContract:
    """Candidates are due tasks and lapsed ones, of one queue's shard, oldest first."""

    def test_the_oldest_due_comes_first(self, bench: Bench) -> None:
        offsets = [3, 1, 2]
        ids = {
            offset: bench.submit(next_attempt_at=bench.now + offset * SECOND).id
            for offset in offsets
        }
        bench.clock.advance("3s")

        assert [each.task_id for each in bench.candidates()] == [ids[1], ids[2], ids[3]]

    def test_due_at_the_very_moment_is_due(self, bench: Bench) -> None:
        bench.submit(next_attempt_at=bench.now + SECOND)

        assert len(bench.candidates(ahead=SECOND - timedelta(milliseconds=1))) == 0
        assert len(bench.candidates(ahead=SECOND)) == 1

    def test_a_candidate_says_what_a_claimant_needs(self, bench: Bench) -> None:
        task = bench.submit(handler_ref="charge-card", concurrency_key="acct:17")

        (waiting,) = bench.candidates()
        claim = bench.claim(task.id)
        (claimed,) = bench.candidates(ahead=LEASE)

        assert (waiting.queue, waiting.handler_ref, waiting.concurrency_key) == (
            "billing",
            "charge-card",
            "acct:17",
        )
        assert (waiting.status, waiting.due_at) == (Status.PENDING, bench.now)
        assert (claimed.status, claimed.due_at) == (Status.IN_FLIGHT, claim.lease_expires_at)
        assert (claimed.fencing_token, waiting.fencing_token) == (
            claim.fencing_token,
            claim.fencing_token - 1,
        )

    def test_other_queues_and_shards_are_not_proposed(self, bench: Bench) -> None:
        bench.submit(queue="email")
        bench.shards = 4
        ids = {bench.submit(id=f"1{number:025d}").id for number in range(20)}

        by_shard = [
            {
                each.task_id
                for each in bench.store.candidates(
                    "billing", shard, until=bench.now, limit=100
                ).items
            }
            for shard in range(4)
        ]

        assert set.union(*by_shard) == ids
        assert sum(len(shard) for shard in by_shard) == 20
        assert all(by_shard)

    def test_tasks_of_one_concurrency_key_are_proposed_together(self, bench: Bench) -> None:
        bench.shards = 4
        ids = {bench.submit(concurrency_key="acct:17").id for _ in range(8)}

        by_shard = [
            bench.store.candidates("billing", shard, until=bench.now, limit=100).items
            for shard in range(4)
        ]

        assert [{each.task_id for each in shard} for shard in by_shard if shard] == [ids]

    def test_at_most_the_limit_is_read_and_the_rest_is_on_further_pages(self, bench: Bench) -> None:
        ids = {bench.submit().id for _ in range(5)}

        read = [
            [each.task_id for each in page.items]
            for page in pages(
                partial(bench.store.candidates, "billing", 0, until=bench.now, limit=2)
            )
        ]

        assert max(len(page) for page in read) == 2
        assert Counter(task_id for page in read for task_id in page) == Counter(ids)

    @pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.DEAD, Status.CANCELLED])
    def test_what_has_ended_is_not_proposed(self, bench: Bench, status: Status) -> None:
        ended = bench.task_in(status).id

        assert ended not in {each.task_id for each in bench.candidates(ahead=timedelta(days=400))}


class ClaimContract:
    """One claimant wins, under the condition that the index entry is current."""

    def test_a_claim_leases_the_task(self, bench: Bench) -> None:
        task = bench.submit()
        candidate = bench.candidate(task.id)
        grant = a_grant(bench.now)

        claim = bench.store.claim(candidate, grant)

        assert claim is not None
        assert (claim.token, claim.fencing_token) == (grant.token, candidate.fencing_token + 1)
        assert (claim.claimed_at, claim.lease_expires_at) == (bench.now, bench.now + LEASE)
        assert (claim.attempt_no, claim.task.status, claim.task.attempt_count) == (
            1,
            Status.IN_FLIGHT,
            0,
        )
        stored = bench.task(task.id)
        assert (stored.status, stored.lease_expires_at, stored.next_attempt_at) == (
            Status.IN_FLIGHT,
            bench.now + LEASE,
            None,
        )

    def test_a_claim_clears_the_last_failure(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim)
        assert bench.task(claim.task.id).failure is not None

        again = bench.claim(claim.task.id)

        assert (again.task.failure, bench.task(claim.task.id).failure) == (None, None)

    def test_a_claim_knows_what_was_spent_and_which_attempt_it_makes(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.reschedule(claim)
        bench.release(bench.claim(claim.task.id))

        third = bench.claim(claim.task.id)

        assert (third.task.attempt_count, third.history_length, third.attempt_no) == (1, 1, 2)
        assert third.fencing_token == claim.fencing_token + 2

    def test_a_claimed_task_is_not_claimed_again(self, bench: Bench) -> None:
        task = bench.submit()
        candidate = bench.candidate(task.id)
        bench.claim(task.id)
        before = bench.everything(task.id)

        for outdated in (candidate, bench.candidate(task.id)):
            assert bench.store.claim(outdated, a_grant(bench.now)) is None

        assert bench.everything(task.id) == before

    def test_a_lapsed_lease_is_not_taken_over_by_a_mere_claim(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.clock.advance(LEASE)
        before = bench.everything(claim.task.id)

        assert bench.store.claim(bench.candidate(claim.task.id), a_grant(bench.now)) is None

        assert bench.everything(claim.task.id) == before

    def test_an_entry_from_before_an_attempt_does_not_claim_the_one_after_it(
        self, bench: Bench
    ) -> None:
        task = bench.submit()
        outdated = bench.candidate(task.id)
        bench.reschedule(bench.claim(task.id))
        before = bench.everything(task.id)

        assert bench.store.claim(outdated, a_grant(bench.now)) is None

        assert bench.everything(task.id) == before

    def test_a_task_that_is_not_due_is_not_claimed_whatever_the_index_says(
        self, bench: Bench
    ) -> None:
        claim = bench.claimed()
        bench.reschedule(claim, after=timedelta(hours=1))
        early = replace(bench.candidate(claim.task.id), due_at=bench.now)
        before = bench.everything(claim.task.id)

        assert bench.store.claim(early, a_grant(bench.now)) is None

        assert bench.everything(claim.task.id) == before

    @pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.DEAD, Status.CANCELLED])
    def test_what_has_ended_is_not_claimed(self, bench: Bench, status: Status) -> None:
        waiting = bench.submit()
        entry = bench.candidate(waiting.id)
        ended = bench.task_in(status).id
        before = bench.everything(ended)

        assert bench.store.claim(replace(entry, task_id=ended), a_grant(bench.now)) is None

        assert bench.everything(ended) == before

    def test_a_task_that_is_gone_is_not_claimed_and_not_made(self, bench: Bench) -> None:
        gone = bench.dead()
        entry = replace(bench.candidate(bench.submit().id), task_id=gone.id)
        bench.purge(gone.id)

        assert bench.store.claim(entry, a_grant(bench.now)) is None
        assert bench.store.lapsed(entry, now=bench.now) is None

        assert bench.store.get(gone.id) is None

    def test_two_hundred_due_tasks_are_each_claimed_once_by_eight_claimants(
        self, bench: Bench
    ) -> None:
        bench.shards = 4
        ids = {bench.submit().id for _ in range(200)}

        claims = side_by_side(
            [partial(claim_all, bench.another(), bench, number) for number in range(8)]
        )

        won = [task_id for claimant in claims for task_id in claimant]  # type: ignore[union-attr]
        assert Counter(won) == Counter(ids)
        assert bench.store.counts("billing").in_flight == 200

    def test_the_clock_of_one_claimant_alone_does_not_make_work_due(self, bench: Bench) -> None:
        """The condition compares the due time with the grant's own time, not with another
        claimant's.
        """
        task = bench.submit(next_attempt_at=bench.now + timedelta(hours=1))
        entry = bench.candidate(task.id)

        assert bench.store.claim(entry, a_grant(bench.now)) is None
        assert bench.store.claim(entry, a_grant(bench.now + timedelta(hours=1))) is not None


class LeaseContract:
    """A lease lapses, can be extended, and is taken over by one claimant, who records the loss."""

    def test_a_claim_is_not_lapsed_before_its_lease_ends(self, bench: Bench) -> None:
        claim = bench.claimed()
        entry = bench.candidate(claim.task.id)

        bench.clock.advance(LEASE - timedelta(milliseconds=1))
        assert bench.store.lapsed(entry, now=bench.now) is None

        bench.clock.advance("1ms")
        assert bench.store.lapsed(entry, now=bench.now) is not None

    def test_the_lapsed_claim_is_the_one_that_was_lost(self, bench: Bench) -> None:
        claim = bench.claimed(payload=noise(3000))

        lapsed = bench.lapse(claim)

        assert (lapsed.token, lapsed.fencing_token, lapsed.claimed_at) == (
            claim.token,
            claim.fencing_token,
            claim.claimed_at,
        )
        assert lapsed.attempt_no == 1
        assert bench.store.load(lapsed).payload == noise(3000)

    @pytest.mark.parametrize(
        "status", [Status.PENDING, Status.SUCCEEDED, Status.DEAD, Status.CANCELLED]
    )
    def test_an_unclaimed_task_does_not_lapse(self, bench: Bench, status: Status) -> None:
        task_id = bench.task_in(status).id
        entry = replace(bench.candidate(bench.submit().id), task_id=task_id)
        bench.clock.advance(LEASE)

        assert bench.store.lapsed(entry, now=bench.now) is None

    def test_a_reclaim_leases_anew_and_records_the_lost_attempt(self, bench: Bench) -> None:
        claim = bench.claimed()
        lapsed = bench.lapse(claim)

        taken = bench.store.reclaim(lapsed, a_lapse(lapsed), grant := a_grant(bench.now))

        assert taken is not None
        assert (taken.token, taken.fencing_token) == (grant.token, claim.fencing_token + 1)
        assert (taken.attempt_no, taken.task.attempt_count, taken.task.status) == (
            2,
            1,
            Status.IN_FLIGHT,
        )
        stored = bench.task(claim.task.id)
        (lost,) = stored.attempts
        assert (lost.outcome, lost.started_at, lost.finished_at) == (
            Outcome.LEASE_EXPIRED,
            claim.claimed_at,
            None,
        )
        assert lost.fencing_token == claim.fencing_token
        assert (stored.attempt_count, stored.lease_expires_at) == (1, bench.now + LEASE)

    def test_every_reclaim_counts(self, bench: Bench) -> None:
        claim = bench.claimed()
        for _ in range(3):
            claim = bench.reclaim(claim)

        stored = bench.task(claim.task.id)
        assert (stored.attempt_count, bench.numbers(claim.task.id)) == (3, [1, 2, 3])
        assert {attempt.outcome for attempt in stored.attempts} == {Outcome.LEASE_EXPIRED}

    def test_of_many_who_reclaim_at_once_one_wins(self, bench: Bench) -> None:
        claim = bench.claimed()
        for _ in range(4):
            lapsed, now = bench.lapse(claim), bench.now
            fellows = [bench.another() for _ in range(8)]

            outcomes = side_by_side(
                [partial(store.reclaim, lapsed, a_lapse(lapsed), a_grant(now)) for store in fellows]
            )

            (claim,) = [outcome for outcome in outcomes if isinstance(outcome, Claim)]
            assert outcomes.count(None) == 7

        assert bench.numbers(claim.task.id) == [1, 2, 3, 4]
        bench.complete(claim)
        assert bench.numbers(claim.task.id) == [1, 2, 3, 4, 5]

    def test_a_reclaim_of_what_was_reclaimed_already_changes_nothing(self, bench: Bench) -> None:
        lapsed = bench.lapse(bench.claimed())
        bench.store.reclaim(lapsed, a_lapse(lapsed), a_grant(bench.now))
        before = bench.everything(lapsed.task.id)

        assert bench.store.reclaim(lapsed, a_lapse(lapsed), a_grant(bench.now)) is None
        assert bench.dead_letter_lapsed(lapsed) is False

        assert bench.everything(lapsed.task.id) == before

    def test_a_heartbeat_that_came_in_between_keeps_the_lease(self, bench: Bench) -> None:
        claim = bench.claimed()
        lapsed = bench.lapse(claim)
        bench.heartbeat(claim)
        before = bench.everything(claim.task.id)

        assert bench.store.reclaim(lapsed, a_lapse(lapsed), a_grant(bench.now)) is None
        assert bench.dead_letter_lapsed(lapsed) is False

        assert bench.everything(claim.task.id) == before
        bench.complete(claim)

    def test_a_heartbeat_holds_the_claim_for_longer(self, bench: Bench) -> None:
        claim = bench.claimed()

        bench.store.heartbeat(claim, bench.now + 3 * LEASE)

        assert bench.task(claim.task.id).lease_expires_at == bench.now + 3 * LEASE
        bench.clock.advance(2 * LEASE)
        assert bench.store.lapsed(bench.candidate(claim.task.id), now=bench.now) is None

    def test_a_heartbeat_never_shortens_a_lease(self, bench: Bench) -> None:
        claim = bench.claimed()
        before = bench.everything(claim.task.id)

        for sooner in (LEASE, LEASE / 2, timedelta(0), timedelta(days=-1)):
            bench.store.heartbeat(claim, bench.now + sooner)

        assert bench.everything(claim.task.id) == before

    def test_a_late_heartbeat_revives_a_lease_that_was_not_taken_over(self, bench: Bench) -> None:
        claim = bench.claimed()
        bench.clock.advance(2 * LEASE)

        bench.store.heartbeat(claim, bench.now + LEASE)

        assert bench.candidates() == []
        bench.complete(claim)

    @pytest.mark.parametrize("verb", ["complete", "reschedule", "dead_letter", "release"])
    def test_an_outcome_after_the_lease_s_end_counts_until_a_takeover(
        self, bench: Bench, verb: str
    ) -> None:
        claim = bench.claimed()
        bench.clock.advance(10 * LEASE)

        getattr(bench, verb)(claim)

        assert bench.task(claim.task.id).status is not Status.IN_FLIGHT

    def test_a_lapsed_lease_that_spent_the_budget_ends_in_the_dlq(self, bench: Bench) -> None:
        claim = bench.claimed()
        lapsed = bench.lapse(claim)

        assert bench.dead_letter_lapsed(lapsed) is True

        stored, entry = bench.task(claim.task.id), bench.entry(claim.task.id)
        assert (stored.status, stored.completed_at, stored.attempt_count) == (
            Status.DEAD,
            bench.now,
            1,
        )
        assert (entry.code, entry.attempts, entry.dead_at) == ("task_lease_expired", 1, bench.now)
        with pytest.raises(LeaseLost):
            bench.complete(claim)

    def test_of_reclaims_dead_letters_and_the_late_holder_one_wins(self, bench: Bench) -> None:
        for _ in range(6):
            claim = bench.claimed()
            lapsed = bench.lapse(claim)

            outcomes = side_by_side(rivals(bench, claim, lapsed))

            wins = [
                outcome for outcome in outcomes if not isinstance(outcome, LeaseLost) and outcome
            ]
            stored = bench.task(claim.task.id)
            assert len(wins) == 1, outcomes
            assert (stored.attempt_count, bench.numbers(claim.task.id)) == (1, [1])
            assert len(bench.dead_entries()) == sum(task.status is Status.DEAD for task in [stored])
            if stored.status is Status.DEAD:
                bench.purge(stored.id)


def rivals(bench: Bench, claim: Claim, lapsed: Claim) -> list[Callable[[], object]]:
    """The callers that may settle a lapsed lease, each with its own store; each returns whether
    it won.
    """
    now, lapse = bench.now, a_lapse(lapsed)

    def late_success(store: TaskStore) -> bool:
        store.complete(claim, a_success(claim, now), NO_RESULT, now=now, expires_at=None)
        return True

    def late_failure(store: TaskStore) -> bool:
        failed = a_failed(claim, now)
        store.reschedule(claim, failed, a_failure(failed), due_at=now)
        return True

    def burial(store: TaskStore) -> bool:
        return store.dead_letter_lapsed(
            lapsed, lapse, a_failure(lapse), a_grant(now), fingerprint="v1:1", expires_at=None
        )

    return [
        partial(late_success, bench.another()),
        partial(late_failure, bench.another()),
        partial(burial, bench.another()),
        partial(burial, bench.another()),
        partial(bench.another().reclaim, lapsed, lapse, a_grant(now)),
        partial(bench.another().reclaim, lapsed, lapse, a_grant(now)),
    ]


def claim_all(store: TaskStore, bench: Bench, number: int) -> list[str]:
    """The ids that one claimant wins.

    It claims from the head of the index, in its own order, until the index is empty.
    """
    order, won, shards = random.Random(number), [], list(range(bench.shards))
    while shards:
        shard = order.choice(shards)
        head = list(store.candidates("billing", shard, until=bench.now, limit=20).items)
        if not head:
            shards.remove(shard)
        order.shuffle(head)
        for candidate in head:
            claim = store.claim(candidate, a_grant(bench.now))
            won += [] if claim is None else [claim.task.id]
    return won
