"""The sweeper function: sweeps of bounded time that bring help when much is due, and see to it that
work goes on.

schedule, kick ──► sweep ──┬── much is due ──► helpers, each with a share of the shards
                           └── out of time, with work left ──► one successor
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from aws_lambda_powertools.metrics import MetricUnit

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.domain import limits
from rdq_core.domain.units import format_duration
from rdq_core.engine.backlog import count_due, shares
from rdq_core.engine.ports import HandlerSource
from rdq_core.engine.report import SweepReport
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import ConfigInvalid, InputInvalid, StoreFailed
from rdq_core.handlers.registry import Registry
from rdq_core.runtime.gauges import Gauges
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.runtime.loading import load_registry
from rdq_core.runtime.reservations import (
    BACKGROUND,
    SCHEDULED_EVERY,
    Places,
    helpers_place,
    successors_place,
)
from rdq_core.runtime.sweepers import build_sweeper

REGISTRY: Final = "RDQ_REGISTRY"
"""The environment variable that names handlers packaged with the function, as MODULE[:REGISTRY]."""
HELP_ABOVE: Final = "RDQ_HELP_ABOVE"
HELP_SHARE: Final = "RDQ_HELP_SHARE"
_MANY: Final = 200
MARGIN: Final = timedelta(seconds=5)
"""What is kept free of the invocation's time for the last writes, looks and starts."""


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """What an event asks for: these queues, None: all that this function serves; these shards of
    them, None: all.
    """

    queues: tuple[str, ...] | None = None
    shards: tuple[int, ...] | None = None

    @classmethod
    def of(cls, event: object) -> "SweepOrder":
        """The order of an event; a schedule's asks for everything. InputInvalid for names and
        numbers that are none.
        """
        if not isinstance(event, Mapping):
            return cls()
        queues, shards = event.get("queues"), event.get("shards")
        return cls(
            None
            if queues is None
            else tuple(limits.check_name("queues", queue) for queue in _list("queues", queues)),
            None if shards is None else tuple(_shard(shard) for shard in _list("shards", shards)),
        )

    def as_event(self) -> dict[str, Any]:
        """The event that asks for the same."""
        told = {"queues": self.queues, "shards": self.shards}
        return {name: list(value) for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One invocation: the function that is running, who it is on attempt records, and the time that
    it has left.
    """

    function: str
    worker: str
    remaining: timedelta | None


class SweeperFunction:
    """Sweeps what an event asks for. `rdq_of` makes the `Rdq` that reconcilers get."""

    def __init__(self, host: FunctionHost, rdq_of: Callable[[Any], object] | None = None) -> None:
        self._host = host
        self._parts = host.parts
        self._registry = (
            load_registry(host.environ[REGISTRY]) if host.environ.get(REGISTRY) else Registry()
        )
        self._rdq = rdq_of(host.parts) if rdq_of is not None and self._registry.repairs else None
        self._places = Places(
            host.parts.reservations, clock=host.parts.clock, on_error=host.parts.on_error
        )
        self._help_above = _threshold(host.environ, HELP_ABOVE)
        self._help_share = _threshold(host.environ, HELP_SHARE)
        self._gauges = Gauges(host.parts, host.metrics)

    def sweep(self, order: SweepOrder, invocation: Invocation) -> dict[str, Any]:
        """Sweep until nothing is due or the time is up; the report. Never raises for a task's
        failure.
        """
        served = self._served(order, invocation.remaining)
        helpers = (
            0
            if order.shards is not None
            else sum(self._bring_help(each, invocation) for each in served)
        )
        own = [helpers_place(each.queue, order.shards) for each in served] if order.shards else []
        for place in own:
            self._places.keep(place, lasts=_time_of(invocation))
        report = self._sweep(served, order, invocation)
        for place in own:
            self._places.give_back(place)
        has_successor = self._bring_successor(report, order, invocation)
        if order == SweepOrder():  # a schedule's: one a minute
            self._gauges.tell()
        return {
            "total": asdict(report.total),
            "queues": {queue: asdict(numbers) for queue, numbers in report.queues.items()},
            "left": list(report.left),
            "helpers": helpers,
            "successor": has_successor,
        }

    def _sweep(
        self, served: Sequence[QueueSettings], order: SweepOrder, invocation: Invocation
    ) -> SweepReport:
        ends_at = self._parts.clock.now() + _time_of(invocation)
        shortest = min((each.execution.handler_timeout for each in served), default=timedelta(0))
        bounds = SweepLimits(
            deadline=ends_at - shortest, ends_at=ends_at, only_what_fits=True, shards=order.shards
        )
        names = tuple(each.queue for each in served)
        handlers: HandlerSource = self._registry
        sweeper = build_sweeper(
            self._parts,
            handlers,
            serves=names,
            worker=invocation.worker,
            host=Host.SWEEPER,
            rdq=self._rdq,
            awake=True,
        )
        return sweeper.sweep(bounds)

    def _served(self, order: SweepOrder, remaining: timedelta | None) -> list[QueueSettings]:
        """The queues that are this host's, and whose handlers fit into its time. Of others it is
        told.
        """
        found = self._parts.queues.all()
        names = tuple(found) if order.queues is None else order.queues
        mine = [found[name] for name in names if name in found and self._is_mine(found[name])]
        return [each for each in mine if self._fits(each, remaining)]

    def _is_mine(self, settings: QueueSettings) -> bool:
        """Whether this function can run the queue's tasks, and may. One that couldn't would find
        them unroutable.
        """
        is_registered = settings.queue in self._registry.queues
        if settings.host in (Host.SWEEPER, Host.ANY):
            return is_registered or bool(settings.handlers)
        if is_registered:
            problem = f"is {settings.host}, and the sweeper has handlers for the queue; accepted: sweeper or any"
            error = ConfigInvalid(f"queues.{settings.queue}.dispatch.host", problem)
            self._parts.on_error(error, where=f"serving queue {settings.queue}")
        return False

    def _fits(self, settings: QueueSettings, remaining: timedelta | None) -> bool:
        timeout = settings.execution.handler_timeout
        if timeout + MARGIN <= (remaining or timedelta(0)):
            return True
        problem = f"is {format_duration(timeout)}, which doesn't fit into this function's time; give it more, or the"
        path = f"queues.{settings.queue}.execution.handler_timeout"
        self._parts.on_error(
            ConfigInvalid(path, f"{problem} queue to workers (dispatch.host)"),
            where=f"serving queue {settings.queue}",
        )
        self._host.metrics.measure("unservable", 1, MetricUnit.Count, queue=settings.queue)
        return False

    # -- company -----------------------------------------------------------------------------------

    def _bring_help(self, settings: QueueSettings, invocation: Invocation) -> int:
        """Start helpers for what is due beyond what one sweep can take; how many were started."""
        most = settings.dispatch.max_sweepers - 1
        if most < 1 or settings.paused:
            return 0
        now = self._parts.clock.now()
        try:
            due = count_due(
                self._parts.store,
                settings,
                now=now,
                most=self._help_above + most * self._help_share,
            )
        except StoreFailed as failed:
            self._parts.on_error(failed, where=f"counting what is due in queue {settings.queue}")
            return 0
        wanted = min(-(-(due - self._help_above) // self._help_share), most)
        parts = shares(settings.shards_ever, wanted) if wanted > 0 else []
        return sum(self._start_helper(settings.queue, share, invocation) for share in parts)

    def _start_helper(self, queue: str, share: tuple[int, ...], invocation: Invocation) -> bool:
        place = helpers_place(queue, share)
        return self._places.takes(place) and self._start(
            invocation, SweepOrder((queue,), share), [place], where="starting a helper"
        )

    def _bring_successor(
        self, report: SweepReport, order: SweepOrder, invocation: Invocation
    ) -> bool:
        """Start one sweep for what is left, but for what another one's successor goes on with;
        whether it was.
        """
        lasts = min(_time_of(invocation), SCHEDULED_EVERY)
        wanted = {queue: _place_after(queue, order) for queue in report.left}
        if report.left_background_work and order.shards is None:
            wanted[BACKGROUND] = successors_place(BACKGROUND)
        taken = {
            queue: place
            for queue, place in wanted.items()
            if self._places.takes(place, lasts=lasts)
        }
        queues = tuple(queue for queue in taken if queue != BACKGROUND) or order.queues
        return bool(taken) and self._start(
            invocation,
            SweepOrder(queues, order.shards),
            list(taken.values()),
            where="starting the successor",
        )

    def _start(
        self, invocation: Invocation, order: SweepOrder, places: Sequence[str], *, where: str
    ) -> bool:
        """Start a sweep in places that were taken for it. One that is refused leaves them free."""
        try:
            self._host.start(invocation.function, order.as_event())
        # botocore's errors have no root of their own; the schedule comes anyway
        except Exception as error:  # noqa: BLE001
            self._parts.on_error(error, where=where)
            for place in places:
                self._places.give_back(place)
            return False
        return True


def _threshold(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name) or str(_MANY)
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ConfigInvalid(name, "must be a whole number of tasks, 1 or more")
    return int(text)


def _time_of(invocation: Invocation) -> timedelta:
    """What an invocation has for sweeping."""
    return max((invocation.remaining or timedelta(0)) - MARGIN, timedelta(0))


def _place_after(queue: str, order: SweepOrder) -> str:
    """The place of a successor: of a helper its own."""
    return helpers_place(queue, order.shards) if order.shards else successors_place(queue)


def _list(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise InputInvalid(name, "must be a list")
    return value


def _shard(value: object) -> int:
    least, most = 0, 99
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputInvalid("shards", f"must be numbers from {least} to {most}")
    return value
