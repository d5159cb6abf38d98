"""Somebody else acts between any two requests of a verb: whoever comes second changes nothing that anybody can see.

A zombie is a process that was frozen between two of its writes and goes on as if nothing had happened. What it has put
before its deciding write must never become history, a body or a result; and where it had won already, it must be told
so even though others went on since.
"""

from contextlib import suppress

import pytest

from rdq_core.errors import RdqError
from rdq_core.testing.faults import FaultScript
from tests.contract import deeds
from tests.contract.deeds import Meanwhile, Prepare, Ready, check_whole, happens, run_to_the_end
from tests.contract.stage import Stage

NAMES = [f"{deed.__name__} while somebody {other.__name__}" for deed, other in deeds.RACES]


@pytest.mark.parametrize(("deed", "meanwhile"), deeds.RACES, ids=NAMES)
def test_a_late_writer_changes_nothing_that_anybody_can_see(
    quick_stage: Stage, deed: Prepare, meanwhile: Meanwhile
) -> None:
    stage = quick_stage
    happened = []
    for ready, k in stage.each_request(deed, first=2):
        left: list[object] = []

        def somebody_acts(task_id: str = ready.task_id, left: list[object] = left) -> None:
            happened.append(happens(meanwhile, stage.others, task_id))
            left.append(stage.others.seen(task_id))

        with FaultScript(stage.client) as faults:
            faults.interleave(somebody_acts, at=k)
            late = came_late(stage, ready)

        if late:
            assert stage.others.seen(ready.task_id) == left[0], f"request {k}"
        else:
            check_whole(stage.others, ready.task_id)
        run_to_the_end(stage.others, ready.task_id)
        check_whole(stage.others, ready.task_id)
    assert any(happened), "the race was none"


WINNERS = [
    deed
    for deed in deeds.ALL
    if deed not in (deeds.claim, deeds.reclaim, deeds.release, deeds.purge, deeds.submit, deeds.submit_many)
]
"""Who is known again whatever others do afterwards. A claim that was lost meanwhile is of no use to know of."""


@pytest.mark.parametrize("deed", WINNERS, ids=lambda deed: deed.__name__)
def test_a_winner_whose_answer_was_lost_is_told_so_though_others_went_on(stage: Stage, deed: Prepare) -> None:
    """The deciding request is carried out, somebody else goes on with the task, and only then the answer is lost."""
    for ready, k in stage.each_request(deed):
        before = stage.others.seen(ready.task_id)
        won: list[bool] = []

        def others_go_on(ready: Ready = ready, before: object = before, won: list[bool] = won) -> None:
            won.append(stage.others.seen(ready.task_id) != before)
            with suppress(RdqError, AssertionError, StopIteration):
                deeds.takes_over_and_fails(stage.others, ready.task_id)

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
