"""The contract of forgetting: tasks of the target or requester are removed, later submits stay."""

from datetime import timedelta

import pytest

from rdq_core.domain.references import GRACE, Reference, ReferenceKind
from rdq_core.domain.task import Status
from rdq_core.engine.ports import Submission
from rdq_core.errors import LeaseLost, TaskConflict
from rdq_core.testing.contract.bench import RETENTION, Bench
from rdq_core.testing.contract.factories import a_task, noise

ANN = Reference(ReferenceKind.REQUESTED_BY, "ann@example.org")
ORDER = Reference(ReferenceKind.TARGET, "order:88213")
OF_BOTH = {"target": ORDER.value, "requested_by": ANN.value}


class ForgetContract:
    """A forget removes the tasks that exist at its moment, in any status, and nothing else."""

    @pytest.mark.parametrize("reference", [ANN, ORDER], ids=lambda reference: str(reference.kind))
    @pytest.mark.parametrize("status", list(Status))
    def test_a_forgotten_task_is_gone_with_all_it_had(
        self, bench: Bench, status: Status, reference: Reference
    ) -> None:
        task_id = in_status(bench, status)

        assert bench.store.forget(reference, now=bench.now) == 1

        assert bench.seen(task_id) == {"task": None, "entry": None, "index": []}
        assert not bench.raw(task_id)
        assert (bench.dead_entries(), bench.store.counts("billing").dead) == ([], 0)

    def test_only_what_has_the_reference_is_forgotten(self, bench: Bench) -> None:
        mine = [
            bench.submit(target="order:1", queue=queue).id
            for queue in ("billing", "email", "billing")
        ]
        others = [
            bench.submit(target="order:2"),
            bench.submit(requested_by="order:1"),
            bench.submit(),
        ]
        before = [bench.everything(task.id) for task in others]

        assert bench.store.forget(Reference(ReferenceKind.TARGET, "order:1"), now=bench.now) == 3

        assert [bench.store.get(task_id) for task_id in mine] == [None] * 3
        assert [bench.everything(task.id) for task in others] == before

    def test_forgetting_an_unknown_target_or_again_forgets_nothing(self, bench: Bench) -> None:
        assert bench.store.forget(ANN, now=bench.now) == 0
        bench.clock.advance("1m")
        bench.submit(**OF_BOTH)
        assert [bench.store.forget(each, now=bench.now) for each in (ANN, ANN, ORDER)] == [1, 0, 0]

    def test_what_was_submitted_after_the_moment_of_the_forget_stays(self, bench: Bench) -> None:
        forgotten_at = bench.now
        bench.clock.advance(GRACE + timedelta(milliseconds=1))
        task = bench.submit(**OF_BOTH)
        before = bench.everything(task.id)

        assert bench.store.forget(ANN, now=forgotten_at) == 0

        assert bench.everything(task.id) == before
        assert bench.claim(task.id).task.id == task.id

    def test_what_is_submitted_as_it_is_forgotten_is_refused_and_leaves_nothing(
        self, bench: Bench
    ) -> None:
        bench.store.forget(ORDER, now=bench.now)
        task = a_task(payload=noise(3000), **OF_BOTH)
        with pytest.raises(TaskConflict, match="forgotten") as refusal:
            bench.store.submit(task, shards=bench.shards)
        (answer,) = bench.store.submit_many([task], shards_of=lambda _: bench.shards)

        assert ORDER.value not in str(refusal.value)
        assert isinstance(answer, TaskConflict)
        assert (bench.store.get(task.id), bool(bench.raw(task.id))) == (None, False)
        bench.clock.advance(GRACE + timedelta(milliseconds=1))
        assert bench.submit(id=task.id, **OF_BOTH).status is Status.PENDING

    def test_a_later_forget_is_not_taken_back_by_an_earlier_one(self, bench: Bench) -> None:
        earlier = bench.now
        bench.clock.advance("1h")
        bench.store.forget(ORDER, now=bench.now)
        bench.store.forget(ORDER, now=earlier)
        with pytest.raises(TaskConflict):
            bench.store.submit(a_task(target=ORDER.value), shards=bench.shards)

    def test_the_holder_of_a_forgotten_task_finds_its_lease_lost(self, bench: Bench) -> None:
        claim = bench.claimed(**OF_BOTH)
        bench.store.forget(ANN, now=bench.now)
        for act in (bench.heartbeat, bench.complete, bench.release):
            with pytest.raises(LeaseLost):
                act(claim)
        assert bench.store.get(claim.task.id) is None

    def test_a_later_task_of_the_same_id_is_not_forgotten_for_the_earlier_ones_reference(
        self, bench: Bench
    ) -> None:
        old = bench.succeeded(payload=noise(2000), **OF_BOTH)
        bench.clock.advance(RETENTION)
        bench.submit(id=old.id, payload=b"new")
        before = bench.seen(old.id)

        assert bench.store.forget(ANN, now=bench.now) == 0

        assert bench.seen(old.id) == before

    def test_what_has_expired_is_not_counted_and_gone_too(self, bench: Bench) -> None:
        old = bench.succeeded(payload=noise(2000), **OF_BOTH)
        bench.clock.advance(RETENTION)
        assert bench.store.forget(ANN, now=bench.now) == 0
        assert not bench.raw(old.id)

    def test_many_tasks_are_forgotten_at_once(self, bench: Bench) -> None:
        tasks = [a_task(**OF_BOTH) for _ in range(40)]
        answers = bench.store.submit_many(tasks, shards_of=lambda _: bench.shards)
        assert all(isinstance(answer, Submission) for answer in answers)
        assert bench.store.forget(ORDER, now=bench.now) == 40


def in_status(bench: Bench, status: Status) -> str:
    """A task in this status that has failed once and is too large for its row."""
    given = {"payload": noise(3000), **OF_BOTH}
    if status is Status.PENDING:
        return bench.submit(**given).id
    claim = bench.claimed(**given)
    bench.reschedule(claim)
    claim = bench.claim(claim.task.id)
    match status:
        case Status.SUCCEEDED:
            bench.complete(claim)
        case Status.DEAD:
            bench.dead_letter(claim)
        case Status.CANCELLED:
            bench.cancel(claim.task.id)
    return claim.task.id
