"""A scheduler that decides by its seed which of many threads runs, and what time it is.

One thread runs at a time. Each yields where it waits: for an answer, for a lock, for time to pass.
No thread really sleeps: when all of them wait, time jumps to the next thing that happens. The seed
orders what happens at the same moment, so the same seed gives the same run.
"""

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

SECOND: Final = 1_000_000
"""Time is counted in microseconds."""
FOREVER: Final = 1 << 62


class Killed(BaseException):
    """The process of this thread has died."""


@dataclass(eq=False, slots=True)
class Home:
    """What lives and dies together: a process. It neither runs nor hears anything while it is
    frozen.

    `stood_still` is how long its monotonic clock did, which it only does if `clock_stops`.
    """

    name: str
    clock_stops: bool = False
    stood_still: int = 0
    frozen_since: int = 0
    frozen_until: int = 0
    is_dead: bool = False
    strands: "list[Strand]" = field(default_factory=list)
    held: "list[tuple[Strand, int]]" = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Strand:
    """One thread of a process. `ticket` counts its waits: only the wake-up of its present wait
    counts.
    """

    name: str
    home: Home
    target: Callable[[], object]
    ticket: int = 0
    carrier: "_Carrier | None" = None
    is_done: bool = False
    call: Any = None


class _Carrier:
    """A thread of the operating system. It carries one strand after the other, over many runs."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        self.job: Callable[[], None] | None = None
        threading.Thread(target=self._carry, name="rdq-simulated", daemon=True).start()

    def _carry(self) -> None:
        while True:
            self.turn.acquire()
            job, self.job = self.job, None
            if job is not None:
                job()


_idle: list[_Carrier] = []


class Scheduler:
    """The time and the threads of one run."""

    def __init__(self, seed: str) -> None:
        self.now = 0
        self.failure: BaseException | None = None
        self._random = random.Random(f"{seed}/schedule")
        self._queue: list[tuple[int, float, int, Strand | None, Any]] = []
        self._count = 0
        self._current: Strand | None = None
        self._strands: list[Strand] = []
        self._is_over = False
        self._main = threading.Lock()

    @property
    def current(self) -> Strand:
        """The strand that runs now."""
        assert self._current is not None
        return self._current

    @property
    def is_over(self) -> bool:
        """Whether the run is: those who still wait are killed."""
        return self._is_over

    # -- for the world -----------------------------------------------------------------------------

    def run(self) -> None:
        """Go on until `finish`, until nothing is left to happen, or until something fails, which is
        raised here.
        """
        self._main.acquire()
        self._next(None)
        self._main.acquire()
        if self.failure is not None:
            raise self.failure

    def finish(self, failure: BaseException | None = None) -> None:
        """End the run: every thread is killed where it waits."""
        self._is_over = True
        self.failure = self.failure or failure

    def at(self, moment: int, call: Callable[[], object]) -> None:
        """Have something happen at a moment."""
        self._push(moment, None, call)

    def spawn(self, home: Home, target: Callable[[], object], name: str) -> Strand:
        """A new thread of a process; it starts when its turn comes."""
        strand = Strand(name, home, target)
        home.strands.append(strand)
        self._strands.append(strand)
        self.wake(strand)
        return strand

    def kill(self, home: Home) -> None:
        """A process dies. If it is the caller's own, Killed is raised here and now."""
        home.is_dead = True
        self.thaw(home)
        for strand in home.strands:
            self.wake(strand)
        if self._current is not None and self._current.home is home:
            raise Killed

    def freeze(self, home: Home, until: int) -> None:
        """A process stands still until that moment, or until it is thawed."""
        if not home.frozen_until:
            home.frozen_since = self.now
        home.frozen_until = max(home.frozen_until, until)
        self.at(
            home.frozen_until, lambda: self.thaw(home) if home.frozen_until <= self.now else None
        )

    def thaw(self, home: Home) -> None:
        """A process goes on, with everything that it has missed."""
        if home.frozen_until and home.clock_stops:
            home.stood_still += self.now - home.frozen_since
        home.frozen_until = 0
        held, home.held = home.held, []
        for strand, ticket in held:
            self._push(self.now, strand, ticket)

    # -- for threads -------------------------------------------------------------------------------

    def wait(self, until: int = FOREVER) -> None:
        """Yield until that moment, or until another thread wakes this one. Raises Killed."""
        me = self.current
        me.ticket += 1
        if until < FOREVER:
            self._push(max(until, self.now), me, me.ticket)
        self._live(me)
        self._next(me)
        self._live(me)

    def check_alive(self) -> None:
        """Raise Killed in a thread whose process is dead, so that it has no more effects."""
        self._live(self.current)

    def wake(self, strand: Strand, at: int | None = None) -> None:
        """End a thread's wait, at a moment or as soon as its turn comes."""
        if not strand.is_done:
            strand.ticket += at is None
            self._push(self.now if at is None else at, strand, strand.ticket)

    # -- inside ------------------------------------------------------------------------------------

    def _live(self, me: Strand) -> None:
        if self._is_over or me.home.is_dead:
            raise Killed

    def _push(self, moment: int, strand: Strand | None, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (moment, self._random.random(), self._count, strand, what))

    def _next(self, me: Strand | None) -> None:
        """Run what comes next, up to a strand's turn; return when it is the turn of `me` again."""
        chosen = self._chosen()
        self._current = chosen
        if chosen is me and me is not None:
            return
        mine = None if me is None else me.carrier
        self._turn(chosen)
        if mine is not None:
            mine.turn.acquire()

    def _chosen(self) -> Strand | None:
        while not self._is_over and self._queue:
            moment, _, _, strand, what = heapq.heappop(self._queue)
            if strand is None:
                self.now = max(self.now, moment)
                self._happens(what)
            elif what == strand.ticket and not strand.is_done:
                self.now = max(self.now, moment)
                if strand.home.frozen_until <= self.now:
                    return strand
                strand.home.held.append((strand, what))
        self._is_over = True  # nothing happens any more: threads that still wait, wait for ever
        return next((strand for strand in self._strands if strand.carrier), None)

    def _happens(self, call: Callable[[], object]) -> None:
        self._current = None
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the run was started
            self.finish(error)

    def _turn(self, strand: Strand | None) -> None:
        if strand is None:
            self._main.release()
            return
        if strand.carrier is None:
            strand.carrier = _idle.pop() if _idle else _Carrier()
            strand.carrier.job = lambda: self._runs(strand)
        strand.carrier.turn.release()

    def _runs(self, me: Strand) -> None:
        try:
            me.target()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the run was started
            self.finish(error)
        me.is_done = True
        me.home.strands.remove(me)
        self._strands.remove(me)
        if me.carrier is not None:
            _idle.append(me.carrier)
        self._next(None)
