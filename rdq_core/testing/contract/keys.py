"""The contract of concurrency keys: one task of a key in flight, and no key held without a task."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rdq_core.domain.lease import Claim
from rdq_core.engine.ports import KEY_BUSY, KeyBusy
from rdq_core.testing.contract.bench import LEASE, Bench, side_by_side
from rdq_core.testing.contract.factories import a_grant

WAYS_OUT: dict[str, Callable[[Bench, Claim], object]] = {
    "complete": lambda bench, claim: bench.complete(claim),
    "reschedule": lambda bench, claim: bench.reschedule(claim, after=timedelta(hours=9)),
    "dead-letter": lambda bench, claim: bench.dead_letter(claim),
    "release": lambda bench, claim: bench.release(claim, after=timedelta(hours=9)),
    "cancel": lambda bench, claim: bench.cancel(claim.task.id),
    "dead-letter a lapsed one": lambda bench, claim: bench.dead_letter_lapsed(bench.lapse(claim)),
}


def claim_keyed(bench: Bench, task_id: str) -> Claim | KeyBusy | None:
    """The claim; else the answer that another task of the key is in flight, or None."""
    return bench.store.claim_keyed(bench.candidate(task_id), a_grant(bench.now))


def held(bench: Bench, key: str = "ann") -> Claim:
    """A claim that holds the key."""
    claim = claim_keyed(bench, bench.submit(concurrency_key=key).id)
    assert isinstance(claim, Claim)
    return claim


class KeyContract:
    """A key is held by one claim at a time, and is free as soon as that claim has ended."""

    def test_a_keyed_claim_leases_the_task_like_any_other(self, bench: Bench) -> None:
        claim = held(bench)
        assert claim.task == bench.store.load(claim)
        assert bench.task(claim.task.id).lease_expires_at == claim.lease_expires_at
        bench.complete(claim)
        assert bench.numbers(claim.task.id) == [1]

    def test_a_second_task_of_the_key_has_to_wait_and_nothing_of_it_changes(
        self, bench: Bench
    ) -> None:
        held(bench)
        second = bench.submit(concurrency_key="ann").id
        before = bench.everything(second)
        assert claim_keyed(bench, second) is KEY_BUSY
        assert bench.everything(second) == before

    def test_another_key_and_another_queue_are_free(self, bench: Bench) -> None:
        held(bench)
        held(bench, "bob")
        other = bench.submit(concurrency_key="ann", queue="other")
        assert isinstance(
            bench.store.claim_keyed(bench.candidate(other.id, "other"), a_grant(bench.now)), Claim
        )

    @pytest.mark.parametrize("way", WAYS_OUT)
    def test_every_way_out_frees_the_key(self, bench: Bench, way: str) -> None:
        claim = held(bench)
        WAYS_OUT[way](bench, claim)
        held(bench)

    def test_a_lapsed_holder_keeps_its_key_and_so_does_who_reclaims_it(self, bench: Bench) -> None:
        claim = held(bench)
        second = bench.submit(concurrency_key="ann").id
        lapsed = bench.lapse(claim)
        assert claim_keyed(bench, second) is KEY_BUSY
        bench.heartbeat(claim)
        assert claim_keyed(bench, second) is KEY_BUSY
        bench.clock.advance(2 * LEASE)
        taken = bench.reclaim(lapsed)
        assert claim_keyed(bench, second) is KEY_BUSY
        bench.complete(taken)
        assert isinstance(claim_keyed(bench, second), Claim)

    def test_a_redriven_task_competes_for_its_key_again(self, bench: Bench) -> None:
        claim = held(bench)
        bench.dead_letter(claim)
        second = held(bench)
        bench.redrive(claim.task.id)
        assert claim_keyed(bench, claim.task.id) is KEY_BUSY
        bench.complete(second)
        assert isinstance(claim_keyed(bench, claim.task.id), Claim)

    def test_of_many_claimants_of_one_key_one_wins(self, bench: Bench) -> None:
        tasks = [bench.submit(concurrency_key="ann").id for _ in range(8)]
        candidates = [bench.candidate(task_id) for task_id in tasks]
        outcomes = side_by_side(
            [
                lambda candidate=candidate: bench.another().claim_keyed(
                    candidate, a_grant(bench.now)
                )  # type: ignore[misc]
                for candidate in candidates
            ]
        )
        assert sum(isinstance(outcome, Claim) for outcome in outcomes) == 1
        assert all(isinstance(outcome, Claim | KeyBusy) for outcome in outcomes)

    def test_an_outdated_entry_claims_nothing(self, bench: Bench) -> None:
        task_id = bench.submit(concurrency_key="ann").id
        candidate = bench.candidate(task_id)
        bench.release(held_of(bench, task_id))
        assert bench.store.claim_keyed(candidate, a_grant(bench.now)) is None

    def test_what_has_ended_or_is_gone_is_not_claimed(self, bench: Bench) -> None:
        task_id = bench.submit(concurrency_key="ann").id
        candidate = bench.candidate(task_id)
        bench.cancel(task_id)
        assert bench.store.claim_keyed(candidate, a_grant(bench.now)) is None


def held_of(bench: Bench, task_id: str) -> Claim:
    """The claim of an existing task, with its key."""
    claim = claim_keyed(bench, task_id)
    assert isinstance(claim, Claim)
    return claim
