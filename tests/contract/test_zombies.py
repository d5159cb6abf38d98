"""Somebody else acts between any two requests of a verb: whoever comes second changes nothing that
anybody can see.

A zombie is a process that was frozen between two of its writes and goes on as if nothing had
happened. What it has put before its deciding write must never become history, a body or a result;
and where it had won already, it must be told so even though others went on since.
"""

from contextlib import suppress

import pytest

from rdq_core.errors import RdqError
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.faults import FaultScript
from tests.contract import store_calls
from tests.contract.stage import Stage
from tests.contract.store_calls import (
    Meanwhile,
    Prepare,
    Ready,
    check_whole,
    happens,
    run_to_the_end,
    shows,
)

FORGETS = (store_calls.forget, store_calls.forget_dead)
"""Who wants a task gone, whoever does it. What begins anew under its id has no target, and is
another's.
"""
NAMES = [f"{call.__name__} while somebody {other.__name__}" for call, other in store_calls.RACES]


@pytest.mark.parametrize(("call", "meanwhile"), store_calls.RACES, ids=NAMES)
def test_a_late_writer_changes_nothing_that_anybody_can_see(
    quick_stage: Stage, call: Prepare, meanwhile: Meanwhile
) -> None:
    stage = quick_stage
    happened = []
    for ready, k in stage.each_request(call, first=2):
        between = Between(stage.others, ready, meanwhile)
        with FaultScript(stage.client) as faults:
            faults.interleave(between, at=k)
            late = came_late(stage, ready)

        after, task = stage.others.seen(ready.task_id), stage.others.store.get(ready.task_id)
        if late:
            assert after == between.left, f"request {k}"
            assert between.was_too_late or not shows(task), f"request {k}"
        else:
            gone = call in (store_calls.purge, *FORGETS) and task is None
            gone = gone or (call in FORGETS and task is not None and task.target is None)
            assert between.was_too_late or after != between.left or gone, (
                f"request {k} came late and wasn't told"
            )
            check_whole(stage.others, ready.task_id)
        run_to_the_end(stage.others, ready.task_id)
        check_whole(stage.others, ready.task_id)
        happened.append(between.happened)
    assert any(happened), "the race was none"


class Between:
    """What somebody else does between two requests: whether it could be done, or came too late; and
    what it left.
    """

    def __init__(self, others: Bench, ready: Ready, meanwhile: Meanwhile) -> None:
        self.others = others
        self.ready = ready
        self.meanwhile = meanwhile

    def __call__(self) -> None:
        self.was_too_late = self.ready.done(self.others.store.get(self.ready.task_id))
        self.happened = happens(self.meanwhile, self.others, self.ready.task_id)
        self.left = self.others.seen(self.ready.task_id)


NOT_KNOWN_AGAIN = (
    store_calls.claim,
    store_calls.reclaim,
    store_calls.adopt,
    store_calls.release,
    store_calls.release_lapsed,
    store_calls.purge,
    store_calls.submit,
    store_calls.submit_many,
)
WINNERS = [call for call in store_calls.ALL if call not in NOT_KNOWN_AGAIN]
"""Who is known again whatever others do afterwards. A claim that was lost meanwhile is of no use to
know of.
"""


@pytest.mark.parametrize("call", WINNERS, ids=lambda call: call.__name__)
def test_a_winner_whose_answer_was_lost_is_told_so_though_others_went_on(
    stage: Stage, call: Prepare
) -> None:
    """The deciding request is carried out, somebody else goes on with the task, and only then the
    answer is lost.
    """
    for ready, k in stage.each_request(call):
        before = stage.others.seen(ready.task_id)
        won: list[bool] = []

        def others_go_on(
            ready: Ready = ready, before: object = before, won: list[bool] = won
        ) -> None:
            won.append(stage.others.seen(ready.task_id) != before)
            with suppress(RdqError, AssertionError, StopIteration):
                store_calls.takes_over_and_fails(stage.others, ready.task_id)

        with FaultScript(stage.client) as faults:
            faults.lose_answer(nth=k)
            faults.interleave(others_go_on, at=k, when="after")
            late = came_late(stage, ready)

        assert late <= (not won[0]), f"request {k}"
        check_whole(stage.others, ready.task_id)


def came_late(stage: Stage, ready: Ready) -> bool:
    """Whether the call is told that somebody else was faster."""
    try:
        return ready.came_late(ready.call(stage.bench.store))
    except RdqError:
        return True
