"""The runner pool alone: slots, threads, and what it reports to its listener."""

import threading
from typing import Any

import pytest

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.task import Status
from rdq_core.engine.effective_settings import EffectiveSettings
from rdq_core.engine.pool import NotRun, RunnerPool, Slots
from rdq_core.engine.ports import KEY_BUSY, Candidate
from rdq_core.engine.report import Resolution
from rdq_core.engine.stopping import Stop
from tests.engine.world import QUEUE, World, until


class Records:
    """A listener that allows claims, or not, and records each end."""

    def __init__(self, *, allows: bool = True) -> None:
        self.allows = allows
        self.ends: list[tuple[str, bool]] = []

    def may_claim(self, settings: QueueSettings) -> bool:
        return self.allows

    def on_unreached(self, candidate: Candidate, settings: QueueSettings) -> None:
        raise AssertionError("no handler is a function")

    def on_end(
        self,
        candidate: Candidate,
        settings: QueueSettings,
        result: Resolution | NotRun,
        *,
        claimed: bool,
    ) -> None:
        self.ends.append((str(result), claimed))


class Takes:
    """A claimer that returns, or raises, the same for every candidate."""

    def __init__(self, taken: object) -> None:
        self._taken = taken

    def take(self, candidate: Candidate, settings: QueueSettings) -> Any:
        if isinstance(self._taken, Exception):
            raise self._taken
        return self._taken


def a_candidate(world: World) -> Candidate:
    return Candidate(
        task_id="a",
        queue=QUEUE,
        due_at=world.clock.now(),
        status=Status.PENDING,
        fencing_token=0,
        handler_ref="charge",
    )


def run_one(taken: object, listener: Records) -> tuple[World, RunnerPool, Slots]:
    """A pool that has dealt with one candidate."""
    world, slots = World(), Slots()
    pool = RunnerPool(
        Takes(taken),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        EffectiveSettings(world.queues, world.registry, world.told.on_error),
        slots=slots,
        stop=Stop(),
        listener=listener,
        on_error=world.told.on_error,
    )
    assert slots.acquire(QUEUE, 1)
    pool.start(a_candidate(world), world.queues.settings(QUEUE))
    until(lambda: not pool.is_at_work)
    return world, pool, slots


def test_a_slot_is_free_up_to_the_limit_and_again_after_its_release() -> None:
    slots = Slots()
    assert [slots.acquire(QUEUE, 2) for _ in range(3)] == [2, 1, 0]
    slots.release(QUEUE)
    assert (slots.taken(QUEUE), slots.any_taken, slots.acquire(QUEUE, 2)) == (1, True, 1)


@pytest.mark.parametrize(
    ("taken", "result"),
    [
        (None, NotRun.CONTENDED),
        (KEY_BUSY, NotRun.BUSY),
        (ValueError("a bug"), NotRun.BUSY),
        (Resolution.RELEASED, Resolution.RELEASED),
    ],
)
def test_a_candidate_that_is_not_claimed_is_reported_and_releases_its_slot(
    taken: object, result: str
) -> None:
    listener = Records()
    _, pool, slots = run_one(taken, listener)
    assert listener.ends == [(result, False)]
    assert (pool.started, slots.taken(QUEUE), pool.changed.is_set()) == (0, 0, True)


def test_without_time_left_a_candidate_is_not_claimed() -> None:
    listener = Records(allows=False)
    _, _, slots = run_one(AssertionError("it was claimed"), listener)
    assert listener.ends == [(NotRun.NO_TIME, False)]
    assert slots.taken(QUEUE) == 0


def test_a_bug_in_a_run_is_reported_and_counts_as_a_lost_claim() -> None:
    world = World()
    world.handler(lambda _order: None)
    world.submit()
    (candidate,) = world.store.candidates(QUEUE, 0, until=world.clock.now(), limit=1).items
    claim = world.claimer().take(candidate, world.queues.settings(QUEUE))
    listener = Records()
    failed, pool, _ = run_one(claim, listener)  # there is no runner to run it
    assert listener.ends == [(Resolution.LOST, True)]
    assert [where for where, _ in failed.told.errors] == ["working on task a"]
    assert pool.started == 1


def test_a_start_without_a_thread_reports_nothing_and_wakes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    listener = Records()
    with pytest.raises(RuntimeError, match="thread"):
        run_one(None, listener)
    assert listener.ends == []
