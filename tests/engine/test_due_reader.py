"""What a due reader reads, and how often, on a store that counts its reads."""

from datetime import datetime, timedelta
from typing import Any

from rdq_core.domain.task import Status
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.ports import Candidate, Jitter, Page
from rdq_core.testing.clock import FrozenClock, NoJitter
from tests.engine.world import QUEUE, World

POLL = timedelta(seconds=1)


class Index:
    """Entries of a due index by shard, read page by page; `reads` has the shard of each read."""

    def __init__(self) -> None:
        self.entries: dict[int, list[Candidate]] = {}
        self.reads: list[int] = []

    def put(self, name: str, due_at: datetime, *, shard: int = 0, key: str | None = None) -> None:
        entry = Candidate(
            task_id=name,
            queue=QUEUE,
            due_at=due_at,
            status=Status.PENDING,
            fencing_token=1,
            handler_ref="charge",
            concurrency_key=key,
        )
        self.entries.setdefault(shard, []).append(entry)
        self.entries[shard].sort(key=lambda each: (each.due_at, each.task_id))

    def drop(self, name: str) -> None:
        for shard, entries in self.entries.items():
            self.entries[shard] = [entry for entry in entries if entry.task_id != name]

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        self.reads.append(shard)
        rest = [each for each in self.entries.get(shard, []) if each.due_at <= until]
        rest = (
            rest
            if after is None
            else [each for each in rest if (each.due_at, each.task_id) > after]
        )
        last = (rest[limit - 1].due_at, rest[limit - 1].task_id) if len(rest) > limit else None
        return Page(rest[:limit], last)


class Reader:
    """A due_reader over an index, and a reader that takes what it hands out off the index, as
    claims do.
    """

    def __init__(
        self, *, shards: int = 1, batch_size: int = 10, jitter: Jitter | None = None
    ) -> None:
        self.clock, self.index = FrozenClock(), Index()
        world = World(index_shards=shards, dispatch={"batch_size": batch_size})
        self.settings = world.queues.settings(QUEUE)
        self.due_reader = DueReader(
            QUEUE,
            self.index,  # type: ignore[arg-type]
            clock=self.clock,
            jitter=jitter or NoJitter(),
            on_error=world.told.on_error,
        )

    def next(self, *, keeps: tuple[str, ...] = ()) -> str | None:
        """The next name, None when the due_reader wants to be asked later."""
        while True:
            found = self.due_reader.next(
                self.settings, until=self.clock.now() + timedelta(days=1), poll=POLL
            )
            if found is not None:
                if found.task_id not in keeps:
                    self.index.drop(found.task_id)
                return found.task_id
            if self.due_reader.wakes_at(self.clock.now()) > self.clock.now():
                return None


def test_work_that_becomes_due_in_one_shard_does_not_wait_for_the_backlog_of_another() -> None:
    reader = Reader(shards=2)
    for number in range(200):
        reader.index.put(f"old {number:03d}", reader.clock.now() - timedelta(hours=1))
    for _ in range(20):
        reader.next()
    reader.index.put("new", reader.clock.now(), shard=1)
    reader.clock.advance(POLL)
    assert "new" in [reader.next() for _ in range(25)]


def test_what_was_passed_over_is_looked_at_again_however_much_is_due_behind_it() -> None:
    reader = Reader()
    reader.index.put("busy", reader.clock.now() - timedelta(hours=1))
    for number in range(200):
        reader.index.put(f"order {number:03d}", reader.clock.now() - timedelta(minutes=1))
    assert reader.next(keeps=("busy",)) == "busy"
    for _ in range(15):
        reader.next()
    reader.clock.advance(POLL)
    assert "busy" in [reader.next() for _ in range(25)]


def test_a_stream_of_new_work_does_not_keep_deep_entries_from_a_second_look() -> None:
    reader = Reader()
    blocked = tuple(
        f"busy {number:02d}" for number in range(25)
    )  # more than a page: the front alone doesn't show all
    for name in blocked:
        reader.index.put(name, reader.clock.now() - timedelta(hours=1))
    for number in range(50):
        reader.index.put(f"early {number:02d}", reader.clock.now())
    seen: list[str | None] = []
    for number in range(200):
        for half in "ab":
            reader.index.put(f"order {number:03d}{half}", reader.clock.now())
        while (found := reader.next(keeps=blocked)) is not None and found in blocked:
            seen.append(found)
        reader.clock.advance("100ms")
    assert seen.count("busy 24") > 1


class Half:
    """Chance that begins in the middle of each page."""

    def fraction(self) -> float:
        return 0.5


def test_a_page_is_begun_anywhere_and_what_shares_a_key_comes_in_due_order_all_the_same() -> None:
    reader = Reader(jitter=Half())
    for number in range(9):
        key = "ann" if number % 2 else None
        reader.index.put(f"{number}", reader.clock.now() - timedelta(minutes=9 - number), key=key)
    assert [reader.next() for _ in range(9)] == ["4", "1", "6", "3", "8", "0", "5", "2", "7"]


def test_entries_that_were_handed_out_are_paged_over_once_a_look() -> None:
    reader = Reader()
    blocked = tuple(f"busy {number:02d}" for number in range(95))
    for name in blocked:
        reader.index.put(name, reader.clock.now() - timedelta(hours=1))
    assert [reader.next(keeps=blocked) for _ in range(96)] == [*blocked, None]
    assert len(reader.index.reads) <= 11


def test_an_idle_feed_reads_each_shard_once_a_poll() -> None:
    reader = Reader(shards=4)
    for _ in range(10):
        assert reader.next() is None
        reader.clock.advance(POLL)
    assert len(reader.index.reads) == 40


def test_a_known_due_time_is_looked_at_when_it_comes_and_not_before() -> None:
    reader = Reader()
    reader.index.put("soon", reader.clock.now() + timedelta(milliseconds=300))
    assert reader.next() is None
    assert (
        reader.due_reader.wakes_at(reader.clock.now())
        == reader.due_reader.upcoming
        == reader.clock.now() + timedelta(milliseconds=300)
    )
    reader.clock.advance("300ms")
    assert reader.next() == "soon"
    assert len(reader.index.reads) == 2
