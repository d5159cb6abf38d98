"""The kick and the sweeps that it starts. A scheduled sweep comes only after what it can't prevent.

    a row turns PENDING ──► the stream ── late, twice, out of order ──► a kick
                                                                        └─ acquires ──► a sweep

The invariant: while no record, no start and no sweep is under way, no task waits that was due
within a minute of having been written, unless the process that was to serve it was killed.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError, ReadTimeoutError

from rdq_core.config.settings import QueueSettings
from rdq_core.engine.ports import Handler
from rdq_core.errors import StoreFailed
from rdq_core.runtime.hosting import FunctionHost, Start
from rdq_core.runtime.kicking import SWEEPER, KickFunction
from rdq_core.runtime.sweeping import LambdaInvocation, SweeperFunction, SweepOrder
from rdq_core.runtime.telemetry import MetricsSink
from tests.simulation.handlers import Handlers
from tests.simulation.process import Process
from tests.simulation.queues import QUEUE
from tests.simulation.rows import Row, maybe
from tests.simulation.scheduler import SECOND
from tests.simulation.verdict import require
from tests.support.fake_dynamodb import Change

if TYPE_CHECKING:
    from tests.simulation.world import World

_SOON: Final = 60_000
"""Milliseconds up to which a row's due time is the kick's business for sure; a bit more is by the
kick's own clock.
"""
_GIVEN_UP_AFTER: Final = 60 * SECOND
_BELIEVED_FOR: Final = 5 * SECOND
"""How long an announcement or reservation of a process may stand once the process is dead."""
_TIME: Final = timedelta(minutes=15)
_TWICE: Final = 0.2
_NAME: Final = "sweeper"
_ENVIRON: Final[Mapping[str, str]] = {SWEEPER: _NAME}
_SCHEDULED_EVERY: Final = 60 * SECOND


@dataclass(eq=False, slots=True)
class StreamRecord:
    """A record of the stream: when its row was written."""

    at: int
    record: dict[str, Any]


class Wakeups:
    """The stream's records, and who is about to look for work. `under_way` counts records in a
    kick's hands, starts and sweeps.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._dice = random.Random(f"{world.plan.seed}/starts")
        self.stream: list[StreamRecord] = []
        self.under_way = self.started = self.excuses = 0
        self._waiting: dict[str, int] = {}
        self._excused_until = -1
        self._scheduled_at = -_SCHEDULED_EVERY

    def watch(self, changes: Sequence[Change]) -> None:
        """A write was made: the stream has a record of each row that is PENDING after it."""
        for change in changes:
            if change.table == "rdq-tasks" and change.key[1] == "T":
                self._row_changed(change, maybe(change.before), maybe(change.after))

    def _row_changed(self, change: Change, before: Row | None, after: Row | None) -> None:
        if after is None or after.status != "PENDING":
            self._waiting.pop(change.key[0], None)
            return
        now = self._world.scheduler.now
        images = {"OldImage": change.before, "NewImage": change.after}
        self.stream.append(
            StreamRecord(
                now, {"dynamodb": {name: image for name, image in images.items() if image}}
            )
        )
        is_new = before is None or before.status != "PENDING" or before.due_at != after.due_at
        if is_new and (after.due_at or 0) <= self._world.history.seconds * 1000 + _SOON:
            self._waiting[after.task_id] = now

    def excuse(self, who: str, why: str) -> None:
        """A process that was to look for rows can't any more: they are left to the schedule."""
        if not self._world.scheduler.is_over:
            self._world.timeline.note(who, f"{why}: what waits now is left to the schedule")
            self.excuses += 1
            self._excused_until = self._world.scheduler.now + _BELIEVED_FOR

    def check(self) -> None:
        """Require that some process will look for each row that waits."""
        if self.stream or self.under_way:
            return
        left = [task_id for task_id, at in self._waiting.items() if at > self._excused_until]
        with self._world.ending_the_run():
            require(
                "a row is seen by a sweep that is awake, or one is started after it", not left, left
            )

    def schedule(self) -> None:
        """After the trouble: a scheduled sweep a minute, but only if a process was excused."""
        now = self._world.scheduler.now
        if self._excused_until >= 0 and now >= self._scheduled_at + _SCHEDULED_EVERY:
            self._scheduled_at, self._excused_until = now, -1
            self.start({})

    def start(self, event: dict[str, Any]) -> None:
        """A sweeper function begins soon."""
        self.under_way += 1
        self.started += 1
        name, later = f"sweeper-{self.started}", self._dice.choice((0.005, 0.02, 0.5)) * SECOND
        begin = partial(self._world.employ, name, partial(_sweep, event=event), once=True)
        self._world.scheduler.at(self._world.scheduler.now + round(later), begin)


def kick(world: "World", process: Process) -> None:
    """The kick function, which gets some records at a time, again until it succeeds with them."""
    wakeups, starter = world.wakeups, _Starter(world, process)
    parts = world.parts(process)
    parts = replace(parts, reservations=_NotesAcquires(parts.reservations, starter))
    function = KickFunction(
        FunctionHost(parts=parts, metrics=MetricsSink("kick"), start=starter, environ=_ENVIRON)
    )
    while True:
        process.sleep(process.dice.choice((0.01, 0.1, 1.0)) * process.dice.random() + 0.001)
        batch = _taken(wakeups.stream, process)
        if batch:
            wakeups.under_way += 1
            _give(world, process, function, starter, batch)
            wakeups.check()


def _taken(stream: list[StreamRecord], process: Process) -> list[StreamRecord]:
    """Some of the records, out of their order."""
    count = min(len(stream), process.dice.choice((1, 1, 2, 5)))
    return [stream.pop(process.dice.randrange(len(stream))) for _ in range(count)]


def _give(
    world: "World",
    process: Process,
    function: KickFunction,
    starter: "_Starter",
    batch: Sequence[StreamRecord],
) -> None:
    starter.has_acquired = is_done = False
    try:
        is_done = _is_done(world, process, function, batch)
    except BaseException:
        if starter.has_acquired:
            world.wakeups.excuse(process.name, "killed between its reservation and the start")
        raise
    finally:
        world.wakeups.under_way -= 1
        if not is_done or process.dice.random() < _TWICE:
            world.wakeups.stream += batch


def _is_done(
    world: "World", process: Process, function: KickFunction, batch: Sequence[StreamRecord]
) -> bool:
    """Whether these records need not be delivered again."""
    try:
        function.kick({"Records": [record.record for record in batch]})
    except (StoreFailed, ClientError, ReadTimeoutError) as failed:
        world.timeline.note(process.name, f"a batch fails: {type(failed).__name__}")
        if min(record.at for record in batch) + _GIVEN_UP_AFTER > world.scheduler.now:
            return False
        world.wakeups.excuse(process.name, "a batch is given up")
    return True


class _Starter:
    """Starts sweeps for a kick. Now and then a start is refused, or its answer is lost."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self._process = process
        self.has_acquired = False

    def __call__(self, function: str, event: Any) -> None:
        self._process.sleep(0.005)
        trouble = 1.0 if self._world.is_calm else self._process.dice.random()
        if trouble < self._world.plan.refusals:
            raise ClientError(
                {"Error": {"Code": "TooManyRequestsException", "Message": "injected"}}, "Invoke"
            )
        self._world.wakeups.start(dict(event))
        self.has_acquired = False
        self._process.sleep(0.005)
        if trouble < 2 * self._world.plan.refusals:
            raise ReadTimeoutError(endpoint_url=function)


class _NotesAcquires:
    """A `Reservations` that notes whether it may have acquired one."""

    def __init__(self, reservations: Any, starter: _Starter) -> None:
        self._reservations = reservations
        self._starter = starter

    def acquire(self, queue: str, **when: Any) -> bool:
        """From its first request on, a process that is killed may leave a reservation behind."""
        self._starter.has_acquired = True
        self._starter.has_acquired = bool(self._reservations.acquire(queue, **when))
        return self._starter.has_acquired

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reservations, name)


def _sweep(world: "World", process: Process, *, event: dict[str, Any]) -> None:
    """An invocation of the sweeper function. It is not repeated when it fails."""
    wakeups, has_ended = world.wakeups, False
    longest = 2 * world.queues.settings(QUEUE).execution.handler_timeout.total_seconds()
    functions = _Functions(Handlers(world, process, [QUEUE], longest=longest))
    start: Start = lambda _function, event: wakeups.start(dict(event))  # noqa: E731
    try:
        parts = replace(world.parts(process), invoker=lambda: functions)
        host = FunctionHost(
            parts=parts, metrics=MetricsSink("sweeper"), start=start, environ=_ENVIRON
        )
        invocation = LambdaInvocation(function=_NAME, worker=process.name, remaining=_TIME)
        SweeperFunction(host).sweep(SweepOrder.of(event), invocation)
        has_ended = True
    except StoreFailed:
        pass
    finally:
        wakeups.under_way -= 1
        if not has_ended:
            wakeups.excuse(process.name, "a sweep ends before its end")
    wakeups.check()


class _Functions:
    """The functions that the queue names. They run the handlers of the sweep's own process."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def handler(self, ref: str, settings: QueueSettings) -> Handler:
        """See `Invoker.handler`."""
        found = self._handlers.find(ref)
        assert found is not None
        assert ref in settings.handlers
        return found

    def hand_over(self, claim: object, settings: object) -> None:
        """See `Invoker.hand_over`."""
        raise AssertionError("nothing is handed over here")
