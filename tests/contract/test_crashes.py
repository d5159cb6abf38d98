"""Every verb fails at each of its requests: nothing is lost or happens by halves, and all of it can
be repeated.

Processes die between any two requests; networks lose a request or its answer. For each k the k-th
goes wrong, and then either the same caller tries again or somebody who knows nothing of it finishes
the work.
"""

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.task import Status
from rdq_core.errors import StoreFailed, TaskNotFound
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.faults import Fault, FaultScript, LosesAnswer, LosesRequest
from tests.contract import store_calls
from tests.contract.stage import Stage
from tests.contract.store_calls import Prepare, Ready, check_whole, run_to_the_end

HICCUPS: dict[str, Fault] = {
    "request lost": LosesRequest(),
    "answer lost": LosesAnswer(),
}

every_call = pytest.mark.parametrize("call", store_calls.ALL, ids=lambda call: call.__name__)


@every_call
def test_a_process_that_dies_before_a_request_leaves_the_work_to_others(
    quick_stage: Stage, call: Prepare
) -> None:
    stage = quick_stage
    for ready, k in stage.each_request(call):
        with FaultScript(stage.client) as faults:
            faults.lose_request(nth=k, times=None)
            dies(stage, ready)

        others_finish(stage.others, ready)


@every_call
def test_a_process_that_dies_after_a_request_leaves_the_work_to_others(
    quick_stage: Stage, call: Prepare
) -> None:
    stage = quick_stage
    for ready, k in stage.each_request(call):
        with FaultScript(stage.client) as faults:
            faults.lose_answer(nth=k)
            faults.lose_request(nth=k + 1, times=None)
            dies(stage, ready)

        others_finish(stage.others, ready)


@every_call
@pytest.mark.parametrize("carried_out", [False, True], ids=["request lost", "answer lost"])
def test_what_failed_half_way_can_be_repeated(
    quick_stage: Stage, call: Prepare, carried_out: bool
) -> None:
    stage = quick_stage
    for ready, k in stage.each_request(call):
        with FaultScript(stage.client) as faults:
            if carried_out:
                faults.lose_answer(nth=k)
            faults.lose_request(nth=k + carried_out, times=None)
            dies(stage, ready)

        again(stage, ready)

        assert ready.done(stage.others.store.get(ready.task_id)), f"request {k}"
        check_whole(stage.others, ready.task_id)


@every_call
@pytest.mark.parametrize("hiccup", HICCUPS)
def test_one_hiccup_is_not_noticed(stage: Stage, call: Prepare, hiccup: str) -> None:
    for ready, k in stage.each_request(call):
        with FaultScript(stage.client) as faults:
            faults.add(HICCUPS[hiccup], nth=k)
            ready.call(stage.bench.store)

        assert ready.done(stage.others.store.get(ready.task_id)), f"request {k}"
        check_whole(stage.others, ready.task_id)


def dies(stage: Stage, ready: Ready) -> None:
    """The call fails, unless all that is lost of it is tidying up."""
    try:
        ready.call(stage.bench.store)
    except StoreFailed:
        return
    assert ready.done(stage.others.store.get(ready.task_id))


def again(stage: Stage, ready: Ready) -> None:
    try:
        ready.call(stage.bench.store)
    except TaskNotFound:
        # Of a purge that succeeded nothing is left to recognise it by.
        assert stage.others.store.get(ready.task_id) is None


def others_finish(others: Bench, ready: Ready) -> None:
    """Half of anything can't be seen, and a sweeper that comes later brings the task to its one
    end.
    """
    check_whole(others, ready.task_id)
    task = run_to_the_end(others, ready.task_id)
    if task is None:
        return
    assert task.status.is_terminal
    assert [attempt.attempt_no for attempt in task.attempts] == list(
        range(1, len(task.attempts) + 1)
    )
    assert sum(attempt.outcome is Outcome.SUCCESS for attempt in task.attempts) == (
        task.status is Status.SUCCEEDED
    )
