"""Shortened ids: they mean one task or none."""

import pytest

from rdq_core.cli.ids import shorten
from rdq_core.errors import InputInvalid, QueueNotFound, TaskNotFound
from rdq_core.ops.short_ids import ShortIds
from tests.engine.world import QUEUE
from tests.ops.dlq import Dlq

FIRST = "01J0000000AAAAAAAAAA00BEEF"
SECOND = "01J0000000AAAAAAAAAA00CAFE"
OTHER = "02Q75CKAB1WE270298EJYCBEEF"


@pytest.fixture
def dlq() -> Dlq:
    """One dead, one waiting, one running."""
    made = Dlq()
    made.fill(id=FIRST)
    made.world.submit(id=SECOND)
    made.world.submit(id=OTHER)
    made._claim(OTHER)
    return made


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("00BEEF", FIRST),
        ("00beef", FIRST),
        ("CAFE", SECOND),
        ("CBEEF", OTHER),
        ("02Q7", OTHER),
        (FIRST[1:], FIRST),
    ],
)
def test_the_end_or_the_beginning_means_the_one_task_that_has_it(
    dlq: Dlq, short: str, whole: str
) -> None:
    assert ShortIds(dlq.parts).find(short) == whole
    assert ShortIds(dlq.parts).find(short, QUEUE) == whole


@pytest.mark.parametrize("short", ["BEEF", "01J0"])
def test_what_can_mean_several_means_none(dlq: Dlq, short: str) -> None:
    with pytest.raises(InputInvalid, match="2 tasks"):
        ShortIds(dlq.parts).find(short)


def test_what_no_task_has_is_not_found(dlq: Dlq) -> None:
    with pytest.raises(TaskNotFound):
        ShortIds(dlq.parts).find("DEAD")
    with pytest.raises(QueueNotFound):
        ShortIds(dlq.parts).find("CAFE", "nope")


@pytest.mark.parametrize("text", ["", "EEF", "0000-0000", "IOUL", FIRST])
def test_what_is_no_part_of_an_id_is_refused(dlq: Dlq, text: str) -> None:
    with pytest.raises(InputInvalid):
        ShortIds(dlq.parts).find(text)


def test_ids_on_a_screen_are_as_short_as_they_can_be_told_apart() -> None:
    assert shorten([FIRST, SECOND]) == {FIRST: "AA00BEEF", SECOND: "AA00CAFE"}
    alike = [letter + FIRST[1:] for letter in "0123"]
    assert shorten(alike) == {each: each for each in alike}
    near = [FIRST, FIRST[:15] + "B" + FIRST[16:]]
    assert len(set(shorten(near).values())) == 2
    assert {len(short) for short in shorten(near).values()} == {11}
    assert shorten([]) == {}
