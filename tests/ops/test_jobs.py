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
from rdq_core.ops.orders import Canary, Operation, Order
from rdq_core.ops.selection import Filters, Selection
from tests.engine.world import QUEUE, World
from tests.ops.crew import ANN, Crew, an_order, by_type

NOBODY = "01J00000000000000000000000"


@pytest.fixture
def crew() -> Crew:
    return Crew()


# -- what is touched -------------------------------------------------------------------------------


def test_everything_that_was_dead_is_sent_back_and_counted(crew: Crew) -> None:
    ids = crew.bury(7)

    job = crew.finish(crew.start())

    assert (job.state, job.selected, job.done, job.skipped, job.failed) == (
        JobState.DONE,
        7,
        7,
        0,
        0,
    )
    assert crew.dead() == []
    assert crew.redrives(ids) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize(
    "selection",
    [
        by_type("Bang*"),
        Selection(filters=Filters(group="v1:b")),
        Selection(filters=Filters(handler="b")),
    ],
)
def test_only_what_is_meant_is_touched(crew: Crew, selection: Selection) -> None:
    others = crew.bury(5)
    meant = crew.bury(4, error_type="Bang", fingerprint="v1:b", handler_ref="b")
    others += crew.bury(3)

    job = crew.finish(crew.start(an_order(selection=selection)))

    assert (job.selected, job.done) == (4, 4)
    assert crew.waiting(meant) == meant
    assert crew.dead_ids() == others


def test_what_died_in_the_last_five_seconds_is_left(crew: Crew) -> None:
    old = crew.bury(2)
    job = crew.start()
    crew.clock.step(timedelta(seconds=-1))
    young = crew.bury()

    assert crew.finish(job).done == 2
    assert crew.dead_ids() == young
    assert crew.waiting(old) == old


def test_what_dies_again_while_the_job_runs_is_left_for_the_next_one(crew: Crew) -> None:
    ids = crew.bury(6)
    job = crew.jobs().advance(crew.start().id)
    crew.kill(ids[0])

    job = crew.finish(job)

    assert (job.done, job.skipped) == (6, 0)
    assert crew.dead_ids() == [ids[0]]
    assert crew.redrives(ids) == dict.fromkeys(ids, 1)


def test_a_purge_removes_what_is_meant_and_nothing_else(crew: Crew) -> None:
    gone, kept = crew.bury(5, error_type="Bang"), crew.bury(2)

    job = crew.finish(crew.start(an_order(Operation.PURGE, selection=by_type("Bang"))))

    assert (job.state, job.done) == (JobState.DONE, 5)
    assert [crew.store.get(task_id) for task_id in gone] == [None] * 5
    assert crew.dead_ids() == kept


def test_a_job_changes_what_made_the_tasks_die(crew: Crew) -> None:
    ids = crew.bury(3, handler_version="v1")

    crew.finish(crew.start(an_order(edit=Edit(handler_ref="refund", unpin=True))))

    tasks = [crew.store.get(task_id) for task_id in ids]
    assert [(task.handler_ref, task.handler_version) for task in tasks if task] == [
        ("refund", None)
    ] * 3


def test_what_was_redriven_too_often_is_skipped_unless_forced() -> None:
    crew = Crew(World(limits={"max_redrives": 1}))
    ids = crew.bury(3)
    crew.finish(crew.start())
    for task_id in ids:
        crew.kill(task_id)

    refused = crew.finish(crew.start())
    assert (refused.done, refused.skipped, refused.state) == (0, 3, JobState.DONE)
    assert "allows 1" in refused.refusals[0]["message"]
    assert crew.finish(crew.start(an_order(force=True))).done == 3


def test_a_job_about_nothing_is_done_at_once(crew: Crew) -> None:
    job = crew.jobs().advance(crew.start().id)
    assert (job.state, job.selected) == (JobState.DONE, 0)


# -- pace ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "seconds"), [("2/s", 10), ("20/s", 1), ("60/m", 20), ("5/h", 4 * 3600)]
)
def test_the_pace_is_kept_whoever_advances_the_job(rate: str, seconds: int) -> None:
    crew = Crew()
    crew.bury(20)
    job, began = crew.start(an_order(rate=rate)), crew.clock.now()
    while not job.state.is_over:
        for _ in range(3):  # the others come too early
            job = crew.jobs().advance(job.id)
        crew.wait_for(job)

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
    crew = Crew()
    now = crew.clock.now()
    for _ in range(10_000):
        crew._bury()
        crew.clock.step(now - crew.clock.now())
    crew.clock.advance("1h")
    job, began = crew.start(an_order(rate="500/s")), crew.clock.now()

    job = crew.finish(job)

    assert (job.done, crew.dead()) == (10_000, [])
    assert crew.store.counts(QUEUE).pending == 10_000
    assert job.ended_at is not None
    assert timedelta(seconds=19) < job.ended_at - began < timedelta(seconds=20)


def test_tasks_of_a_page_are_treated_side_by_side(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet at a barrier, which one at a time could never pass."""
    crew.bury(8)
    job, redrive, met = crew.start(an_order(rate="8/s")), crew.store.redrive, threading.Barrier(4)

    def meeting(*arguments: Any, **options: Any) -> Any:
        met.wait(60)
        return redrive(*arguments, **options)

    monkeypatch.setattr(crew.store, "redrive", meeting)
    job = crew.parts.advancer(at_once=4).advance(job)

    assert (job.done, crew.dead()) == (8, [])


# -- canary ----------------------------------------------------------------------------------------


def watched(crew: Crew, **canary: object) -> list[str]:
    """Ten dead tasks, of which a job has sent back those that go first, and watches them. The first
    ones' ids.
    """
    crew.bury(10)
    before = crew.dead_ids()
    job = crew.start(
        an_order(
            rate="100/s",
            canary=Canary(**{"first": 4, "min_success": 0.75, **canary}),  # type: ignore[arg-type]
        )
    )
    for _ in range(4):
        crew.wait_for(job)
        job = crew.jobs().advance(job.id)
    assert (job.done, len(crew.dead())) == (4, 6)
    return before[:4]


def only(crew: Crew) -> str:
    (job,) = crew.jobs().list()
    return job.id


def test_the_rest_follows_when_enough_of_the_canary_succeed(crew: Crew) -> None:
    first = watched(crew)
    crew.kill(first[0])
    for task_id in first[1:]:
        crew.succeed(task_id)

    job = crew.finish(crew.jobs().get(only(crew)))

    assert (job.state, job.done, job.is_proved) == (JobState.DONE, 10, True)
    assert crew.dead_ids() == [first[0]]


def test_the_rest_stays_as_soon_as_too_many_of_the_canary_have_failed(crew: Crew) -> None:
    first = watched(crew)
    crew.kill(first[0])
    crew.kill(first[1])

    job = crew.finish(crew.jobs().get(only(crew)))

    assert (job.state, job.done) == (JobState.STOPPED, 4)
    assert job.note == "0 of the first 4 succeeded, and 3 were to"
    assert len(crew.dead()) == 6 + 2


def test_what_is_not_finished_in_time_has_not_succeeded(crew: Crew) -> None:
    first = watched(crew, wait=timedelta(minutes=2))
    for task_id in first[:2]:
        crew.succeed(task_id)
    began = crew.clock.now()

    job = crew.finish(crew.jobs().get(only(crew)))

    assert (job.state, job.note) == (
        JobState.STOPPED,
        "2 of the first 4 succeeded, and 3 were to; 2 had not run when the time was up",
    )
    assert job.ended_at is not None
    assert timedelta(minutes=1, seconds=50) < job.ended_at - began <= timedelta(minutes=2)


def test_the_first_outcome_after_the_redrive_counts_and_not_what_came_of_a_retry(
    crew: Crew,
) -> None:
    first = watched(crew, min_success=1.0)
    crew.kill(first[0])
    crew.store.redrive(
        crew.dead()[-1], Edit(), now=crew.clock.now(), op_id="somebody else", shards=1
    )
    for task_id in first:
        crew.succeed(task_id)

    assert crew.finish(crew.jobs().get(only(crew))).state is JobState.STOPPED


def test_a_canary_task_that_a_person_has_stopped_has_not_succeeded(crew: Crew) -> None:
    first = watched(crew, min_success=1.0)
    crew.store.cancel(first[0], now=crew.clock.now(), op_id="somebody else", expires_at=None)

    assert crew.jobs().advance(only(crew)).state is JobState.OPEN
    crew.clock.advance("1s")
    assert crew.jobs().advance(only(crew)).state is JobState.STOPPED


def test_fewer_tasks_than_the_canary_are_judged_all_the_same(crew: Crew) -> None:
    (task_id,) = crew.bury()
    job = crew.start(an_order(canary=Canary(first=10)))
    crew.jobs().advance(job.id)
    crew.succeed(task_id)

    assert crew.finish(job).state is JobState.DONE


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
    crew = Crew()
    crew.bury(of)
    job = crew.start(an_order(rate="1000/s", canary=Canary(first=of, min_success=part)))
    while not job.judged_by:
        job = crew.jobs().advance(job.id)
        crew.wait_for(job)
    sent = [seen.task_id for seen in job.canary]
    for task_id in sent[: max(enough - 1, 0)]:
        crew.succeed(task_id)
    if enough:
        assert crew.jobs().advance(job.id).state is JobState.OPEN
        crew.succeed(sent[enough - 1])
        crew.clock.advance("1s")
    assert crew.jobs().advance(job.id).state is JobState.DONE


# -- pause, resume, cancel -------------------------------------------------------------------------


def test_a_paused_job_waits_until_it_is_resumed(crew: Crew) -> None:
    crew.bury(6)
    job = crew.jobs().advance(crew.start().id)
    crew.jobs().pause(job.id)
    crew.clock.advance("1h")
    assert crew.jobs().advance(job.id).done == 2
    assert crew.background_work().step(until=crew.clock.now() + timedelta(seconds=1)) is None

    crew.jobs().resume(job.id, crew.parts.auditor(ANN))

    assert crew.finish(job).done == 6


def test_a_cancelled_job_leaves_the_rest(crew: Crew) -> None:
    crew.bury(6)
    job = crew.jobs().advance(crew.start().id)

    cancelled = crew.jobs().cancel(job.id, crew.parts.auditor(ANN), reason="a mistake")

    assert (cancelled.state, cancelled.done, len(crew.dead())) == (JobState.CANCELLED, 2, 4)
    assert crew.jobs().list() == [cancelled]
    for request in (crew.jobs().cancel, crew.jobs().resume):
        with pytest.raises(TaskConflict, match="cancelled already"):
            request(job.id, crew.parts.auditor(ANN))
    with pytest.raises(TaskConflict, match="cancelled already"):
        crew.jobs().pause(job.id)


def test_a_job_that_is_cancelled_and_filed_under_an_empty_page_holds_nobody_up(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, others = crew.parts.jobs, [crew.jobs()]
    replaced = store.replace

    def meanwhile(seen: Job, job: Job) -> bool:
        done = replaced(seen, job)
        if (
            others
        ):  # the page is written down; before it is counted others end the job and put it away
            desk = others.pop()
            desk.cancel(job.id, crew.parts.auditor(ANN))
            desk.advance(job.id)
        return done

    started = crew.start()
    monkeypatch.setattr(store, "replace", meanwhile)
    assert crew.jobs().advance(started.id).state is JobState.CANCELLED
    assert [job.state for job in crew.jobs().list()] == [JobState.CANCELLED]


def test_there_is_no_job_that_nobody_started(crew: Crew) -> None:
    with pytest.raises(TaskNotFound):
        crew.jobs().get(NOBODY)
    with pytest.raises(InputInvalid):
        crew.jobs().get("nonsense")


def test_jobs_are_listed_open_ones_first(crew: Crew) -> None:
    crew.bury(2)
    ended = crew.finish(crew.start())
    first, second = crew.start(), crew.start()

    assert [job.id for job in crew.jobs().list()] == [second.id, first.id, ended.id]


def test_a_job_whose_queue_is_gone_ends(crew: Crew) -> None:
    crew.bury(3)
    job = crew.start()
    crew.world.queues.begin_delete(QUEUE, now=crew.clock.now())
    stored = crew.world.queues.stored(QUEUE)
    assert stored is not None
    crew.world.queues.end_delete(stored, now=crew.clock.now())

    job = crew.finish(job)

    assert job.state is JobState.STOPPED
    assert len(crew.dead()) == 3


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
def test_an_order_that_makes_no_sense_begins_nothing(crew: Crew, order: Order) -> None:
    with pytest.raises(InputInvalid):
        crew.start(order)
    assert (crew.jobs().list(), crew.records()) == ([], [])


def test_a_job_for_an_unknown_queue_begins_nothing(crew: Crew) -> None:
    with pytest.raises(QueueNotFound):
        crew.jobs().start("nope", an_order(), crew.parts.auditor(ANN))
    assert crew.jobs().list() == []


@pytest.mark.parametrize(
    "order",
    [
        an_order(),
        an_order(Operation.PURGE, selection=Selection(filters=Filters(group="v1:a")), rate="5/m"),
        an_order(
            force=True,
            edit=Edit(handler_ref="r", unpin=True),
            canary=Canary(first=3, min_success=0.5),
        ),
    ],
)
def test_an_order_survives_being_written_down(order: Order) -> None:
    assert Order.from_plain(order.operation, order.to_plain()) == order


# -- audit -----------------------------------------------------------------------------------------


def test_an_intent_comes_before_the_first_write_and_the_end_after_the_last(crew: Crew) -> None:
    crew.bury(3)
    job = crew.start(an_order(selection=by_type("Boom")), reason="bug 17 is mended")
    (intent,) = crew.records()
    assert len(crew.dead()) == 3

    crew.finish(job)

    first, end = crew.records()
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


def test_who_cancels_a_job_is_on_record_too(crew: Crew) -> None:
    crew.bury(1)
    job = crew.start()
    crew.jobs().cancel(job.id, crew.parts.auditor(ANN), reason="a mistake")

    told = [(record.operation, record.phase, record.reason) for record in crew.records()]
    assert ("job.cancel", Phase.INTENT, "a mistake") in told
    assert ("job.cancel", Phase.DONE, "a mistake") in told
    assert ("dlq.redrive", Phase.DONE, None) in told
