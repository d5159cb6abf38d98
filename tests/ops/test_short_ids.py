"""Shortened ids: they mean one task or none."""

import pytest

from rdq_core.cli.ids import shorten
from rdq_core.errors import InputInvalid, QueueNotFound, TaskNotFound
from tests.engine.world import QUEUE
from tests.ops.crew import Crew

FIRST = "01J0000000AAAAAAAAAA00BEEF"
SECOND = "01J0000000AAAAAAAAAA00CAFE"
OTHER = "02Q75CKAB1WE270298EJYCBEEF"


@pytest.fixture
def crew() -> Crew:
    """One dead, one waiting, one running."""
    made = Crew()
    made.bury(id=FIRST)
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
    crew: Crew, short: str, whole: str
) -> None:
    assert crew.parts.short_ids().find(short) == whole
    assert crew.parts.short_ids().find(short, QUEUE) == whole


@pytest.mark.parametrize("short", ["BEEF", "01J0"])
def test_what_can_mean_several_means_none(crew: Crew, short: str) -> None:
    with pytest.raises(InputInvalid, match="2 tasks"):
        crew.parts.short_ids().find(short)


def test_what_no_task_has_is_not_found(crew: Crew) -> None:
    with pytest.raises(TaskNotFound):
        crew.parts.short_ids().find("DEAD")
    with pytest.raises(QueueNotFound):
        crew.parts.short_ids().find("CAFE", "nope")


@pytest.mark.parametrize("text", ["", "EEF", "0000-0000", "IOUL", FIRST])
def test_what_is_no_part_of_an_id_is_refused(crew: Crew, text: str) -> None:
    with pytest.raises(InputInvalid):
        crew.parts.short_ids().find(text)


def test_ids_on_a_screen_are_as_short_as_they_can_be_told_apart() -> None:
    assert shorten([FIRST, SECOND]) == {FIRST: "AA00BEEF", SECOND: "AA00CAFE"}
    alike = [letter + FIRST[1:] for letter in "0123"]
    assert shorten(alike) == {each: each for each in alike}
    near = [FIRST, FIRST[:15] + "B" + FIRST[16:]]
    assert len(set(shorten(near).values())) == 2
    assert {len(short) for short in shorten(near).values()} == {11}
    assert shorten([]) == {}
