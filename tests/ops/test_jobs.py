"""Bulk operations on a store in memory and a clock that the test moves: what they touch, how fast,
and how they end.
"""

import threading
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.job import Job, JobState
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.ports import Phase
from rdq_core.errors import InputInvalid, QueueNotFound, TaskConflict, TaskNotFound
from rdq_core.ops.advancing import Advancer
from rdq_core.ops.orders import Canary, Operation, Order
from rdq_core.ops.selection import Selection
from tests.engine.world import QUEUE, World
from tests.ops.dlq import ANN, Dlq, an_order, by_type

NOBODY = "01J00000000000000000000000"


@pytest.fixture
def dlq() -> Dlq:
    return Dlq()


# -- what is touched -------------------------------------------------------------------------------


def test_everything_that_was_dead_is_sent_back_and_counted(dlq: Dlq) -> None:
    ids = dlq.fill(7)

    job = dlq.finish(dlq.start())

    assert (job.state, job.selected, job.done, job.skipped, job.failed) == (
        JobState.DONE,
        7,
        7,
        0,
        0,
    )
    assert dlq.dead() == []
    assert dlq.redrives(ids) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize(
    "selection",
    [
        by_type("Bang*"),
        Selection(group="v1:b"),
        Selection(handler="b"),
    ],
)
def test_only_what_is_meant_is_touched(dlq: Dlq, selection: Selection) -> None:
    others = dlq.fill(5)
    meant = dlq.fill(4, error_type="Bang", fingerprint="v1:b", handler_ref="b")
    others += dlq.fill(3)

    job = dlq.finish(dlq.start(an_order(selection=selection)))

    assert (job.selected, job.done) == (4, 4)
    assert dlq.waiting(meant) == meant
    assert dlq.dead_ids() == others


def test_what_died_in_the_last_five_seconds_is_left(dlq: Dlq) -> None:
    old = dlq.fill(2)
    job = dlq.start()
    dlq.clock.step(timedelta(seconds=-1))
    young = dlq.fill()

    assert dlq.finish(job).done == 2
    assert dlq.dead_ids() == young
    assert dlq.waiting(old) == old


def test_what_dies_again_while_the_job_runs_is_left_for_the_next_one(dlq: Dlq) -> None:
    ids = dlq.fill(6)
    job = dlq.jobs().advance(dlq.start().id)
    dlq.dead_letter(ids[0])

    job = dlq.finish(job)

    assert (job.done, job.skipped) == (6, 0)
    assert dlq.dead_ids() == [ids[0]]
    assert dlq.redrives(ids) == dict.fromkeys(ids, 1)


def test_a_purge_removes_what_is_meant_and_nothing_else(dlq: Dlq) -> None:
    gone, kept = dlq.fill(5, error_type="Bang"), dlq.fill(2)

    job = dlq.finish(dlq.start(an_order(Operation.PURGE, selection=by_type("Bang"))))

    assert (job.state, job.done) == (JobState.DONE, 5)
    assert [dlq.store.get(task_id) for task_id in gone] == [None] * 5
    assert dlq.dead_ids() == kept


def test_a_job_changes_what_made_the_tasks_die(dlq: Dlq) -> None:
    ids = dlq.fill(3, handler_version="v1")

    dlq.finish(dlq.start(an_order(edit=Edit(handler_ref="refund", unpin=True))))

    tasks = [dlq.store.get(task_id) for task_id in ids]
    assert [(task.handler_ref, task.handler_version) for task in tasks if task] == [
        ("refund", None)
    ] * 3


def test_what_was_redriven_too_often_is_skipped_unless_forced() -> None:
    dlq = Dlq(World(limits={"max_redrives": 1}))
    ids = dlq.fill(3)
    dlq.finish(dlq.start())
    for task_id in ids:
        dlq.dead_letter(task_id)

    refused = dlq.finish(dlq.start())
    assert (refused.done, refused.skipped, refused.state) == (0, 3, JobState.DONE)
    assert "allows 1" in refused.refusals[0]["message"]
    assert dlq.finish(dlq.start(an_order(force=True))).done == 3


def test_a_job_about_nothing_is_done_at_once(dlq: Dlq) -> None:
    job = dlq.jobs().advance(dlq.start().id)
    assert (job.state, job.selected) == (JobState.DONE, 0)


# -- pace ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "seconds"), [("2/s", 10), ("20/s", 1), ("60/m", 20), ("5/h", 4 * 3600)]
)
def test_the_rate_is_kept_by_every_host_that_advances_the_job(rate: str, seconds: int) -> None:
    dlq = Dlq()
    dlq.fill(20)
    job, began = dlq.start(an_order(rate=rate)), dlq.clock.now()
    while not job.state.is_over:
        for _ in range(3):  # the others come too early
            job = dlq.jobs().advance(job.id)
        dlq.wait_for(job)

    assert (job.done, job.ended_at) == (20, began + timedelta(seconds=seconds) - job_step(rate))


def job_step(rate: str) -> timedelta:
    """The pause that the last page doesn't wait for."""
    return {
        "2/s": timedelta(seconds=1),
        "20/s": timedelta(seconds=1),
        "60/m": timedelta(seconds=1),
    }.get(rate, timedelta(minutes=12))


@pytest.mark.slow
def test_ten_thousand_dead_are_sent_back_at_their_pace() -> None:
    dlq = Dlq()
    now = dlq.clock.now()
    for _ in range(10_000):
        dlq.add_dead()
        dlq.clock.step(now - dlq.clock.now())
    dlq.clock.advance("1h")
    job, began = dlq.start(an_order(rate="500/s")), dlq.clock.now()

    job = dlq.finish(job)

    assert (job.done, dlq.dead()) == (10_000, [])
    assert dlq.store.counts(QUEUE).pending == 10_000
    assert job.ended_at is not None
    assert timedelta(seconds=19) < job.ended_at - began < timedelta(seconds=20)


def test_tasks_of_a_page_are_treated_side_by_side(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet at a barrier, which one at a time could never pass."""
    dlq.fill(8)
    job, redrive, met = dlq.start(an_order(rate="8/s")), dlq.store.redrive, threading.Barrier(4)

    def meeting(*arguments: Any, **options: Any) -> Any:
        met.wait(60)
        return redrive(*arguments, **options)

    monkeypatch.setattr(dlq.store, "redrive", meeting)
    job = Advancer(dlq.parts, at_once=4).advance(job)

    assert (job.done, dlq.dead()) == (8, [])


# -- canary ----------------------------------------------------------------------------------------


def watched(dlq: Dlq, **canary: object) -> list[str]:
    """Ten dead tasks, of which a job has sent back those that go first, and watches them. The first
    ones' ids.
    """
    dlq.fill(10)
    before = dlq.dead_ids()
    job = dlq.start(
        an_order(
            rate="100/s",
            canary=Canary(**{"first": 4, "min_success": 0.75, **canary}),  # type: ignore[arg-type]
        )
    )
    for _ in range(4):
        dlq.wait_for(job)
        job = dlq.jobs().advance(job.id)
    assert (job.done, len(dlq.dead())) == (4, 6)
    return before[:4]


def only(dlq: Dlq) -> str:
    (job,) = dlq.jobs().list()
    return job.id


def test_the_rest_follows_when_enough_of_the_canary_succeed(dlq: Dlq) -> None:
    first = watched(dlq)
    dlq.dead_letter(first[0])
    for task_id in first[1:]:
        dlq.succeed(task_id)

    job = dlq.finish(dlq.jobs().get(only(dlq)))

    assert (job.state, job.done, job.is_proved) == (JobState.DONE, 10, True)
    assert dlq.dead_ids() == [first[0]]


def test_the_rest_stays_as_soon_as_too_many_of_the_canary_have_failed(dlq: Dlq) -> None:
    first = watched(dlq)
    dlq.dead_letter(first[0])
    dlq.dead_letter(first[1])

    job = dlq.finish(dlq.jobs().get(only(dlq)))

    assert (job.state, job.done) == (JobState.STOPPED, 4)
    assert job.note == "0 of the first 4 succeeded, and 3 were required"
    assert len(dlq.dead()) == 6 + 2


def test_what_is_not_finished_in_time_has_not_succeeded(dlq: Dlq) -> None:
    first = watched(dlq, wait=timedelta(minutes=2))
    for task_id in first[:2]:
        dlq.succeed(task_id)
    began = dlq.clock.now()

    job = dlq.finish(dlq.jobs().get(only(dlq)))

    assert (job.state, job.note) == (
        JobState.STOPPED,
        "2 of the first 4 succeeded, and 3 were required; 2 had not run in time",
    )
    assert job.ended_at is not None
    assert timedelta(minutes=1, seconds=50) < job.ended_at - began <= timedelta(minutes=2)


def test_the_first_outcome_after_the_redrive_counts_and_not_what_came_of_a_retry(
    dlq: Dlq,
) -> None:
    first = watched(dlq, min_success=1.0)
    dlq.dead_letter(first[0])
    dlq.store.redrive(dlq.dead()[-1], Edit(), now=dlq.clock.now(), op_id="somebody else", shards=1)
    for task_id in first:
        dlq.succeed(task_id)

    assert dlq.finish(dlq.jobs().get(only(dlq))).state is JobState.STOPPED


def test_a_canary_task_that_was_cancelled_has_not_succeeded(dlq: Dlq) -> None:
    first = watched(dlq, min_success=1.0)
    dlq.store.cancel(first[0], now=dlq.clock.now(), op_id="somebody else", expires_at=None)

    assert dlq.jobs().advance(only(dlq)).state is JobState.OPEN
    dlq.clock.advance("1s")
    assert dlq.jobs().advance(only(dlq)).state is JobState.STOPPED


def test_fewer_tasks_than_the_canary_are_judged_all_the_same(dlq: Dlq) -> None:
    (task_id,) = dlq.fill()
    job = dlq.start(an_order(canary=Canary(first=10)))
    dlq.jobs().advance(job.id)
    dlq.succeed(task_id)

    assert dlq.finish(job).state is JobState.DONE


@pytest.mark.parametrize(
    "given",
    [
        {"first": 0},
        {"first": 101},
        {"first": 1, "min_success": 1.1},
        {"first": 1, "wait": timedelta(0)},
    ],
)
def test_a_canary_that_makes_no_sense_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InputInvalid):
        Canary(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "of", "enough"), [(0.07, 100, 7), (0.3, 10, 3), (0.5, 5, 3), (0.0, 5, 0), (1.0, 3, 3)]
)
def test_the_part_that_must_succeed_is_counted_in_whole_tasks(
    part: float, of: int, enough: int
) -> None:
    dlq = Dlq()
    dlq.fill(of)
    job = dlq.start(an_order(rate="1000/s", canary=Canary(first=of, min_success=part)))
    while not job.judged_by:
        job = dlq.jobs().advance(job.id)
        dlq.wait_for(job)
    sent = [seen.task_id for seen in job.canary]
    for task_id in sent[: max(enough - 1, 0)]:
        dlq.succeed(task_id)
    if enough:
        assert dlq.jobs().advance(job.id).state is JobState.OPEN
        dlq.succeed(sent[enough - 1])
        dlq.clock.advance("1s")
    assert dlq.jobs().advance(job.id).state is JobState.DONE


# -- pause, resume, cancel -------------------------------------------------------------------------


def test_a_paused_job_waits_until_it_is_resumed(dlq: Dlq) -> None:
    dlq.fill(6)
    job = dlq.jobs().advance(dlq.start().id)
    dlq.jobs().pause(job.id)
    dlq.clock.advance("1h")
    assert dlq.jobs().advance(job.id).done == 2
    assert dlq.background_work().step(until=dlq.clock.now() + timedelta(seconds=1)) is None

    dlq.jobs().resume(job.id, dlq.parts.auditor(ANN))

    assert dlq.finish(job).done == 6


def test_a_cancelled_job_leaves_the_rest(dlq: Dlq) -> None:
    dlq.fill(6)
    job = dlq.jobs().advance(dlq.start().id)

    cancelled = dlq.jobs().cancel(job.id, dlq.parts.auditor(ANN), reason="a mistake")

    assert (cancelled.state, cancelled.done, len(dlq.dead())) == (JobState.CANCELLED, 2, 4)
    assert dlq.jobs().list() == [cancelled]
    for request in (dlq.jobs().cancel, dlq.jobs().resume):
        with pytest.raises(TaskConflict, match="cancelled already"):
            request(job.id, dlq.parts.auditor(ANN))
    with pytest.raises(TaskConflict, match="cancelled already"):
        dlq.jobs().pause(job.id)


def test_a_job_that_is_cancelled_and_archived_during_an_empty_page_blocks_no_host(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, others = dlq.parts.jobs, [dlq.jobs()]
    replaced = store.replace

    def meanwhile(seen: Job, job: Job) -> bool:
        done = replaced(seen, job)
        if (
            others
        ):  # the page is written down; before it is counted others end the job and put it away
            reader = others.pop()
            reader.cancel(job.id, dlq.parts.auditor(ANN))
            reader.advance(job.id)
        return done

    started = dlq.start()
    monkeypatch.setattr(store, "replace", meanwhile)
    assert dlq.jobs().advance(started.id).state is JobState.CANCELLED
    assert [job.state for job in dlq.jobs().list()] == [JobState.CANCELLED]


def test_an_unknown_job_is_not_found(dlq: Dlq) -> None:
    with pytest.raises(TaskNotFound):
        dlq.jobs().get(NOBODY)
    with pytest.raises(InputInvalid):
        dlq.jobs().get("nonsense")


def test_jobs_are_listed_open_ones_first(dlq: Dlq) -> None:
    dlq.fill(2)
    ended = dlq.finish(dlq.start())
    first, second = dlq.start(), dlq.start()

    assert [job.id for job in dlq.jobs().list()] == [second.id, first.id, ended.id]


def test_a_job_whose_queue_is_gone_ends(dlq: Dlq) -> None:
    dlq.fill(3)
    job = dlq.start()
    dlq.world.queues.begin_delete(QUEUE, now=dlq.clock.now())
    stored = dlq.world.queues.stored(QUEUE)
    assert stored is not None
    dlq.world.queues.end_delete(stored, now=dlq.clock.now())

    job = dlq.finish(job)

    assert job.state is JobState.STOPPED
    assert len(dlq.dead()) == 3


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [
        an_order(rate="fast"),
        an_order(rate="0/s"),
        an_order(selection=Selection(ids=(NOBODY,))),
        an_order(edit=Edit(handler_ref="Nö")),
        an_order(edit=Edit(unpin=True, handler_version="v2")),
        an_order(edit=Edit(payload=b"x")),
        an_order(Operation.PURGE, canary=Canary(first=1)),
        an_order(Operation.PURGE, edit=Edit(unpin=True)),
        an_order(Operation.PURGE, force=True),
    ],
)
def test_an_order_that_makes_no_sense_begins_nothing(dlq: Dlq, order: Order) -> None:
    with pytest.raises(InputInvalid):
        dlq.start(order)
    assert (dlq.jobs().list(), dlq.records()) == ([], [])


def test_a_job_for_an_unknown_queue_begins_nothing(dlq: Dlq) -> None:
    with pytest.raises(QueueNotFound):
        dlq.jobs().start("nope", an_order(), dlq.parts.auditor(ANN))
    assert dlq.jobs().list() == []


@pytest.mark.parametrize(
    "order",
    [
        an_order(),
        an_order(Operation.PURGE, selection=Selection(group="v1:a"), rate="5/m"),
        an_order(
            force=True,
            edit=Edit(handler_ref="r", unpin=True),
            canary=Canary(first=3, min_success=0.5),
        ),
    ],
)
def test_an_order_is_the_same_after_it_was_stored(order: Order) -> None:
    assert Order.from_plain(order.operation, order.to_plain()) == order


# -- audit -----------------------------------------------------------------------------------------


def test_an_intent_comes_before_the_first_write_and_the_end_after_the_last(dlq: Dlq) -> None:
    dlq.fill(3)
    job = dlq.start(an_order(selection=by_type("Boom")), reason="bug 17 is mended")
    (intent,) = dlq.records()
    assert len(dlq.dead()) == 3

    dlq.finish(job)

    first, end = dlq.records()
    assert (first, intent.phase, end.phase) == (intent, Phase.INTENT, Phase.DONE)
    assert intent.detail == {"job_id": job.id, "select": {"type": "Boom"}, "rate": "2/s"}
    assert end.detail == {
        "job_id": job.id,
        "state": "done",
        "selected": 3,
        "done": 3,
        "skipped": 0,
        "failed": 0,
    }
    for record in (intent, end):
        assert (
            record.operation,
            record.operation_id,
            record.principal,
            record.verified,
            record.reason,
        ) == (
            "dlq.redrive",
            intent.id,
            "ann",
            True,
            "bug 17 is mended",
        )


def test_who_cancels_a_job_is_on_record_too(dlq: Dlq) -> None:
    dlq.fill(1)
    job = dlq.start()
    dlq.jobs().cancel(job.id, dlq.parts.auditor(ANN), reason="a mistake")

    found = [(record.operation, record.phase, record.reason) for record in dlq.records()]
    assert ("job.cancel", Phase.INTENT, "a mistake") in found
    assert ("job.cancel", Phase.DONE, "a mistake") in found
    assert ("dlq.redrive", Phase.DONE, None) in found
