"""Requests about dead tasks, on a store in memory and a clock that stands still."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.task import Failure
from rdq_core.engine.ports import Candidate
from rdq_core.engine.redrive import Redriver
from rdq_core.errors import InputInvalid, StaleCursor, StoreFailed
from rdq_core.ops.cursors import from_cursor, to_cursor
from rdq_core.ops.dead_letters import DeadLetters
from rdq_core.ops.selection import Filters, Selection
from rdq_core.runtime.log import Quiet
from rdq_core.runtime.system import SystemIds
from rdq_core.stores.memory import MemoryStore
from rdq_core.stores.memory_queues import MemoryQueues
from rdq_core.testing.clock import FrozenClock
from tests.support.factories import QUEUE, a_failed, a_grant, a_task

ALL = Selection(everything=True)


class Morgue:
    """A DLQ that tests fill."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.store = MemoryStore(clock=self.clock, ids=SystemIds())
        self.queues = MemoryQueues({QUEUE: {"index_shards": 1}}, clock=self.clock)
        self.redriver = Redriver(self.store, self.queues, clock=self.clock, events=Quiet())
        self.desk = DeadLetters(self.store, self.queues, self.redriver, clock=self.clock, ids=SystemIds())

    def bury(self, fingerprint: str = "v1:a", **fields: Any) -> str:
        task = self.store.submit(a_task(**fields), shards=1).task
        self.kill(task.id, fingerprint)
        return task.id

    def kill(self, task_id: str, fingerprint: str = "v1:a") -> None:
        """Claim a due task and let it die a second later."""
        page = self.store.candidates(QUEUE, 0, until=self.clock.now(), limit=100)
        candidate: Candidate = next(each for each in page.items if each.task_id == task_id)
        claim = self.store.claim(candidate, a_grant(self.clock.now()))
        assert claim is not None
        now = self.clock.advance("1s")
        failure = Failure("task_failed", "Boom", "boom")
        self.store.dead_letter(claim, a_failed(claim, now), failure, now=now, fingerprint=fingerprint, expires_at=None)


@pytest.fixture
def morgue() -> Morgue:
    return Morgue()


def test_what_dies_again_while_all_are_sent_back_is_left_for_the_next_time(
    morgue: Morgue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = morgue.bury()
    morgue.bury()
    redrive = morgue.redriver.redrive

    def redrive_and_die_again(entry: Any, *arguments: Any, **options: Any) -> Any:
        task = redrive(entry, *arguments, **options)
        if entry.task_id == first:
            morgue.kill(first)
        return task

    monkeypatch.setattr(morgue.redriver, "redrive", redrive_and_die_again)
    assert morgue.desk.redrive(QUEUE, ALL).done == 2
    (left,) = morgue.desk.entries(QUEUE).items
    assert (left.task_id, left.redrive_count) == (first, 1)


def test_a_storage_failure_is_counted_and_the_rest_goes_on(morgue: Morgue, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = morgue.bury(), morgue.bury()
    redrive = morgue.redriver.redrive

    def failing_once(entry: Any, *arguments: Any, **options: Any) -> Any:
        if entry.task_id == first:
            raise StoreFailed("no answer", may_have_happened=True, task_id=first)
        return redrive(entry, *arguments, **options)

    monkeypatch.setattr(morgue.redriver, "redrive", failing_once)
    done = morgue.desk.redrive(QUEUE, ALL)
    assert (done.selected, done.done, done.failed) == (2, 1, 1)
    assert [refusal.task_id for refusal in done.refusals] == [first]
    assert [entry.task_id for entry in morgue.desk.entries(QUEUE).items] != [second]


@pytest.mark.parametrize("page_size", [1, 2, 7, 100])
def test_filtered_pages_neither_skip_nor_repeat(morgue: Morgue, page_size: int) -> None:
    wanted = {morgue.bury("v1:a" if number % 3 else "v1:b") for number in range(20)}
    seen: list[str] = []
    cursor = None
    while True:
        page = morgue.desk.entries(QUEUE, Filters(group="v1:a"), page_size=page_size, cursor=cursor)
        assert len(page.items) <= page_size
        seen += [entry.task_id for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 13
    assert set(seen) <= wanted


def test_times_of_death_are_bounds_that_include_themselves(morgue: Morgue) -> None:
    ids = [morgue.bury() for _ in range(3)]
    middle = morgue.clock.now() - timedelta(seconds=1)
    assert [each.task_id for each in morgue.desk.entries(QUEUE, Filters(since=middle)).items] == ids[1:]
    assert [each.task_id for each in morgue.desk.entries(QUEUE, Filters(until=middle)).items] == ids[:2]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"everything": True, "ids": ("01J00000000000000000000000",)},
        {"everything": True, "filters": Filters(type="*")},
        {"filters": Filters(type="*", group="v1:a")},
    ],
)
def test_a_selection_is_exactly_one_kind(given: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid, match="exactly one"):
        Selection(**given)


def test_ids_given_twice_are_selected_once() -> None:
    one = "01J00000000000000000000000"
    assert Selection(ids=(one, one.lower())).ids == (one,)


@pytest.mark.parametrize(
    "handle", [1, "x", [1, "a"], (1, (2,)), {"k": b"\x00\xff", "n": None}, {"t": [True, {"u": 1}]}, {}]
)
def test_a_cursor_brings_back_the_handle_that_went_in(handle: Any) -> None:
    cursor = to_cursor(handle, queue=QUEUE, digest="d")
    assert from_cursor(cursor, queue=QUEUE, digest="d") == handle


def test_a_cursor_of_another_query_is_stale() -> None:
    cursor = to_cursor(1, queue=QUEUE, digest=Filters().digest())
    for queue, digest in (("email", Filters().digest()), (QUEUE, replace(Filters(), type="*").digest())):
        with pytest.raises(StaleCursor):
            from_cursor(cursor, queue=queue, digest=digest)
