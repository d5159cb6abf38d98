"""The sweeper function: what it serves, how long, whom it brings, and what it says."""

import base64
import json
import threading
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rdq_core.domain.task import Status
from rdq_core.errors import ConfigInvalid, InputInvalid
from rdq_core.ops.orders import Canary
from rdq_core.runtime.sweeping import SweepOrder
from rdq_core.testing.clock import NOON
from tests.engine.world import QUEUE
from tests.functions.stage import ARN, Stage
from tests.ops.dlq import Dlq, an_order
from tests.support.functions import failed, refused

SCHEDULE = {
    "version": "0",
    "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2026-07-20T12:00:00Z",
    "region": "eu-central-1",
    "resources": ["arn:aws:events:eu-central-1:123456789012:rule/rdq-sweep"],
    "detail": {},
}


@pytest.mark.parametrize("event", [SCHEDULE, {}, None, "ping"])
def test_a_schedules_event_sweeps_everything_that_has_handlers(event: object) -> None:
    stage = Stage()
    stage.world.configure("mail", handlers={"charge": {"function": "mail-fn"}})
    stage.world.configure("others", dispatch={"host": "worker"})
    for queue in (QUEUE, "mail", "others"):
        stage.submit(queue=queue)
    report = stage.sweep(event)
    assert sorted(stage.world.functions.called) == ["charge-fn", "mail-fn"]
    assert report["total"]["completed"] == 2
    assert json.loads(json.dumps(report))["queues"][QUEUE]["completed"] == 1


def test_an_event_may_ask_for_some_queues() -> None:
    stage = Stage()
    stage.world.configure("mail", handlers={"charge": {"function": "mail-fn"}})
    stage.submit()
    stage.submit(queue="mail")
    stage.sweep({"queues": ["mail", "unknown"]})
    assert stage.world.functions.called == ["mail-fn"]


def test_an_event_may_ask_for_some_shards_and_the_rest_is_left() -> None:
    stage = Stage(index_shards=4)
    stage.submit(40)
    done = sum(stage.sweep({"shards": [shard]})["total"]["completed"] for shard in range(3))
    assert 0 < done < 40
    assert done + stage.sweep({"shards": [3]})["total"]["completed"] == 40


NONSENSE: list[dict[str, Any]] = [
    {"queues": "a"},
    {"queues": ["Not a name"]},
    {"shards": [True]},
    {"shards": [-1]},
]


@pytest.mark.parametrize("event", NONSENSE)
def test_an_event_that_asks_for_what_cannot_be_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid):
        SweepOrder.of(event)


def test_it_sleeps_to_a_due_time_that_it_sees_coming() -> None:
    stage = Stage()
    (task_id,) = stage.submit(delay="20s")
    stage.sweep(seconds=120)
    assert stage.world.task(task_id).status is Status.SUCCEEDED
    (attempt,) = stage.world.attempts(task_id)
    assert attempt.started_at == NOON + timedelta(seconds=20)


def test_it_retries_within_its_horizon_and_then_returns() -> None:
    stage = Stage(retry={"initial_backoff": "5s", "jitter": 0})
    stage.world.functions.answer(failed(errorType="E"), failed(errorType="E"))
    (task_id,) = stage.submit()
    stage.sweep(seconds=600)
    assert len(stage.world.attempts(task_id)) == 3
    assert stage.world.clock.now() - NOON < timedelta(seconds=30)


def test_with_nothing_due_it_looks_for_two_seconds_and_starts_nothing() -> None:
    stage = Stage()
    report = stage.sweep()
    assert (report["total"]["claimed"], report["helpers"], report["successor"]) == (0, 0, False)
    assert timedelta(seconds=2) <= stage.world.clock.now() - NOON <= timedelta(seconds=3)
    assert stage.started.events == []


def test_stopped_by_its_deadline_with_work_ahead_it_starts_one_successor() -> None:
    stage = Stage()
    stage.submit(delay="30s")
    report = stage.sweep(seconds=40)
    assert (report["left"], report["successor"]) == ([QUEUE], True)
    assert stage.started.events == [(ARN, {"queues": [QUEUE]})]


def test_a_successor_has_the_shards_of_its_predecessor() -> None:
    stage = Stage(index_shards=1)
    stage.submit(delay="30s")
    stage.sweep({"queues": [QUEUE], "shards": [0]}, seconds=40)
    assert stage.started.events == [(ARN, {"queues": [QUEUE], "shards": [0]})]


def test_stopped_by_its_deadline_with_nothing_ahead_it_starts_no_sweep() -> None:
    stage = Stage(retry={"initial_backoff": "10m", "max_backoff": "10m"})
    stage.world.functions.answer(failed(errorType="E"))

    def slow(_request: object) -> Any:
        stage.world.clock.advance("30s")
        return failed(errorType="E")(_request)  # type: ignore[arg-type]

    stage.world.functions.always("charge-fn", slow)
    stage.submit()
    assert stage.sweep(seconds=45)["successor"] is False
    assert stage.started.events == []


def test_a_start_that_is_refused_is_reported_and_the_report_says_so() -> None:
    stage = Stage()
    stage.started.error = refused("TooManyRequestsException")
    stage.submit(delay="30s")
    assert stage.sweep(seconds=40)["successor"] is False
    assert [where for where, _ in stage.world.told.errors] == ["starting the successor"]


def test_nothing_is_claimed_that_may_not_be_done_in_time() -> None:
    stage = Stage()
    stage.world.configure(
        "slow", handlers={"charge": {"function": "slow-fn"}}, execution={"handler_timeout": "50s"}
    )
    (slow,) = stage.submit(queue="slow", delay="10s")
    (quick,) = stage.submit(delay="20s")
    report = stage.sweep(seconds=60)
    assert stage.world.task(quick).status is Status.SUCCEEDED
    assert stage.world.task(slow).status is Status.PENDING
    assert stage.started.events == [(ARN, {"queues": ["slow"]})]
    assert report["left"] == ["slow"]


def test_a_queue_that_does_not_fit_at_all_is_reported_each_time_and_not_served(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Stage(execution={"handler_timeout": "2m", "lease": "5m"})
    stage.submit()
    for _ in range(2):
        with stage.host.invocation():
            stage.sweep(seconds=100)
    assert len([error for _, error in stage.world.told.errors if "doesn't fit" in str(error)]) == 2
    assert stage.world.functions.called == []
    # By queue, and once more for the alarm, each time.
    assert capsys.readouterr().out.count('"unservable":[1.0]') == 4


@pytest.mark.parametrize("seconds", [0, -1, 3, None])
def test_without_time_it_claims_nothing(seconds: float | None) -> None:
    stage = Stage()
    stage.submit()
    assert stage.sweep(seconds=seconds)["total"]["claimed"] == 0


def test_however_many_sweeps_run_out_of_time_together_they_have_one_successor() -> None:
    stage = Stage()
    stage.submit(delay="30s")
    for _ in range(3):
        stage.world.clock.step(NOON - stage.world.clock.now())
        stage.sweep(seconds=40)
    assert stage.started.events == [(ARN, {"queues": [QUEUE]})]


def test_a_job_that_stays_open_does_not_make_the_sweeps_more_each_minute() -> None:
    stage = Stage()
    dlq = Dlq(stage.world)
    stage.world.functions.always("charge-fn", refused("TooManyRequestsException"))
    dlq.fill(handler_ref="charge", payload=b"{}")
    dlq.start(an_order(canary=Canary(first=1, wait=timedelta(hours=2))))
    start, alive = stage.world.clock.now(), []
    due = deque[tuple[timedelta, object]](
        (timedelta(minutes=minute), SCHEDULE) for minute in range(15)
    )
    while due:
        at, event = due.popleft()
        stage.world.clock.step(start + at - stage.world.clock.now())
        stage.started.events.clear()
        stage.sweep(event, seconds=60)
        ended = stage.world.clock.now() - start
        alive.append((at, ended))
        if ended < timedelta(minutes=15):
            due = deque(
                sorted(
                    [*due, *((ended, each) for _, each in stage.started.events)],
                    key=lambda each: each[0],
                )
            )
    assert max(sum(at <= moment < ended for at, ended in alive) for moment, _ in alive) <= 3


def test_a_refused_start_releases_its_reservation() -> None:
    stage = Stage()
    stage.started.error = refused("TooManyRequestsException")
    stage.submit(delay="30s")
    stage.sweep(seconds=40)
    stage.started.error = None
    stage.world.clock.step(NOON - stage.world.clock.now())
    assert stage.sweep(seconds=40)["successor"] is True


ENVIRON = {"RDQ_HELP_ABOVE": "10", "RDQ_HELP_SHARE": "5"}


@pytest.mark.parametrize("name", ENVIRON)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", " "])
def test_a_threshold_of_help_that_is_no_number_is_refused_at_the_start(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigInvalid, match=name):
        Stage({**ENVIRON, name: value}).sweep()


REGISTRY = """
from rdq_core import Registry

registry = Registry(queues=["local", "mistaken"])
registry.register("charge", lambda order: "here")
"""


def test_handlers_that_are_packaged_with_it_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packaged_handlers.py").write_text(REGISTRY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    stage = Stage({"RDQ_REGISTRY": "packaged_handlers"})
    stage.world.configure("local", dispatch={"host": "sweeper"})
    stage.world.configure("mistaken")
    (here,), (left,) = stage.submit(queue="local"), stage.submit(queue="mistaken")
    stage.sweep()
    assert stage.world.rdq.result(here).output == "here"
    assert stage.world.task(left).status is Status.PENDING
    ((_, problem),) = stage.world.told.errors
    assert "queues.mistaken.dispatch.host" in str(problem)


def test_a_queue_for_any_host_whose_handlers_are_workers_alone_is_left_to_them() -> None:
    stage = Stage()
    stage.world.configure("shared", dispatch={"host": "any"})
    (task_id,) = stage.submit(queue="shared")
    stage.sweep()
    assert stage.world.task(task_id).status is Status.PENDING


class TestHelp:
    def help_for(self, due: int, **config: Any) -> list[Any]:
        stage = Stage(ENVIRON, **{"index_shards": 4, **config})
        stage.submit(due)
        report = stage.sweep()
        assert report["helpers"] == len(stage.started.events)
        assert {function for function, _ in stage.started.events} <= {ARN}
        return [event for _, event in stage.started.events]

    @pytest.mark.parametrize(
        ("due", "expected"), [(0, 0), (10, 0), (11, 1), (15, 1), (16, 2), (40, 4)]
    )
    def test_helpers_are_started_for_what_is_due_beyond_the_threshold(
        self, due: int, expected: int
    ) -> None:
        assert len(self.help_for(due)) == expected

    def test_their_shares_are_disjoint_and_cover_all_shards(self) -> None:
        events = self.help_for(20)
        assert sorted(shard for event in events for shard in event["shards"]) == [0, 1, 2, 3]
        assert {tuple(event["queues"]) for event in events} == {(QUEUE,)}

    def test_with_itself_there_are_no_more_than_max_sweepers(self) -> None:
        assert len(self.help_for(40, dispatch={"max_sweepers": 3})) == 2
        assert self.help_for(40, dispatch={"max_sweepers": 1}) == []

    def test_sweeps_that_overlap_have_no_more_helpers_than_one(self) -> None:
        stage = Stage(ENVIRON, index_shards=4, dispatch={"max_sweepers": 3})
        for _ in range(3):
            stage.submit(40)
            stage.sweep()
        assert len(stage.started.events) == 2

    def test_a_helper_that_has_ended_can_be_started_again(self) -> None:
        stage = Stage(ENVIRON, index_shards=4)
        stage.submit(40)
        stage.sweep()
        brought = [event for _, event in stage.started.events]
        for event in brought:
            stage.sweep(event)
        stage.submit(40)
        stage.sweep()
        assert [event for _, event in stage.started.events] == [*brought, *brought]

    def test_a_helper_extends_its_reservation_for_as_long_as_it_sweeps(self) -> None:
        stage = Stage(ENVIRON, index_shards=1, dispatch={"concurrency": 1})
        brought: list[int] = []

        def slow(_request: object) -> None:
            stage.world.clock.advance("4s")
            if len(brought) < 30:
                brought.append(len(stage.started.events))
                stage.submit(40) if len(brought) == 25 else None
                stage.sweep(seconds=5) if len(brought) == 25 else None

        stage.world.functions.always("charge-fn", slow)
        stage.submit(40)
        stage.sweep({"queues": [QUEUE], "shards": [0]}, seconds=300)
        assert brought[24:26] == [0, 0]

    def test_a_helper_starts_no_helpers(self) -> None:
        stage = Stage(ENVIRON, index_shards=4)
        stage.submit(40)
        assert stage.sweep({"queues": [QUEUE], "shards": [0]})["helpers"] == 0

    def test_what_is_not_due_yet_starts_no_helper(self) -> None:
        stage = Stage(ENVIRON, index_shards=4)
        stage.submit(40, delay="1h")
        assert stage.sweep()["helpers"] == 0


def test_the_same_event_at_once_and_again_has_one_effect_a_lease() -> None:
    stage = Stage(execution={"handler_timeout": "45s", "lease": "10m"})
    tasks = stage.submit(20)
    effects: list[tuple[str, int]] = []

    def effect(request: Any) -> None:
        told = json.loads(base64.b64decode(request["ClientContext"]))["custom"]["rdq"]
        effects.append((told["task_id"], told["fencing_token"]))

    stage.world.functions.always("charge-fn", effect)
    threads = [
        threading.Thread(target=lambda: stage.sweep(SCHEDULE, seconds=120)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.sweep(SCHEDULE, seconds=120)
    # An idle sweep lets time pass at once, so a thread that is slow for real may lose its lease:
    # that is one more.
    assert len(set(effects)) == len(effects)
    assert {task_id for task_id, _ in effects} == set(tasks)
    assert {stage.world.task(task_id).status for task_id in tasks} == {Status.SUCCEEDED}
