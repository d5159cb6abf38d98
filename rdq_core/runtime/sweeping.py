"""The sweeper function: one sweep of bounded time, which starts others if needed.

schedule, kick ──► sweep ──┬── large backlog ► helpers, each with a share of the shards
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
    SweepReservations,
    helper_reservation,
    successor_reservation,
)
from rdq_core.runtime.sweepers import build_sweeper

REGISTRY: Final = "RDQ_REGISTRY"
"""The environment variable that names handlers packaged with the function, as MODULE[:REGISTRY]."""
HELP_ABOVE: Final = "RDQ_HELP_ABOVE"
"""The environment variable for the number of due tasks above which helpers are started."""
HELP_SHARE: Final = "RDQ_HELP_SHARE"
"""The environment variable for the number of due tasks that each helper is started for."""
_DEFAULT_THRESHOLD: Final = 200
MARGIN: Final = timedelta(seconds=5)
"""The part of the invocation's time that is kept for the last writes, looks and starts."""


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """What an event asks for: `queues`, None for all this function serves; `shards`, None all."""

    queues: tuple[str, ...] | None = None
    shards: tuple[int, ...] | None = None

    @classmethod
    def of(cls, event: object) -> "SweepOrder":
        """The order in an event; the schedule's event asks for everything.

        Raises InputInvalid for names and shard numbers that can't exist.
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
        """The event for this order."""
        fields = {"queues": self.queues, "shards": self.shards}
        return {name: list(value) for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaInvocation:
    """One invocation: the function's ARN, its name on attempt records, and the time it has left."""

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
        self._reservations = SweepReservations(
            host.parts.reservations, clock=host.parts.clock, on_error=host.parts.on_error
        )
        self._help_above = _threshold(host.environ, HELP_ABOVE)
        self._help_share = _threshold(host.environ, HELP_SHARE)
        self._gauges = Gauges(host.parts, host.metrics)

    def sweep(self, order: SweepOrder, invocation: LambdaInvocation) -> dict[str, Any]:
        """Sweep until nothing is due or the time is up. Returns the report as JSON data.

        Never raises for a task's failure.
        """
        served = self._served(order, invocation.remaining)
        helpers = (
            0
            if order.shards is not None
            else sum(self._start_helpers(each, invocation) for each in served)
        )
        shards = order.shards
        held = [helper_reservation(each.queue, shards) for each in served] if shards else []
        for name in held:
            self._reservations.extend(name, lasts=_sweep_time(invocation))
        report = self._sweep(served, order, invocation)
        for name in held:
            self._reservations.release(name)
        has_successor = self._start_successor(report, order, invocation)
        if order == SweepOrder():  # a schedule's: one a minute
            self._gauges.emit()
        return {
            "total": asdict(report.total),
            "queues": {queue: asdict(numbers) for queue, numbers in report.queues.items()},
            "left": list(report.left),
            "helpers": helpers,
            "successor": has_successor,
        }

    def _sweep(
        self, served: Sequence[QueueSettings], order: SweepOrder, invocation: LambdaInvocation
    ) -> SweepReport:
        ends_at = self._parts.clock.now() + _sweep_time(invocation)
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
        """The queues that this host serves and whose handlers fit into its time.

        Queues that it should serve and can't are reported.
        """
        configured = self._parts.queues.all()
        names = tuple(configured) if order.queues is None else order.queues
        served = [
            configured[name]
            for name in names
            if name in configured and self._serves(configured[name])
        ]
        return [each for each in served if self._fits(each, remaining)]

    def _serves(self, settings: QueueSettings) -> bool:
        """Whether this function can and may run the queue's tasks.

        Tasks of a queue that it can't run would be dead-lettered as unroutable.
        """
        is_registered = settings.queue in self._registry.queues
        if settings.host in (Host.SWEEPER, Host.ANY):
            return is_registered or bool(settings.handlers)
        if is_registered:
            problem = (
                f"is {settings.host}, and the sweeper has handlers for the queue;"
                " accepted: sweeper or any"
            )
            error = ConfigInvalid(f"queues.{settings.queue}.dispatch.host", problem)
            self._parts.on_error(error, where=f"serving queue {settings.queue}")
        return False

    def _fits(self, settings: QueueSettings, remaining: timedelta | None) -> bool:
        timeout = settings.execution.handler_timeout
        if timeout + MARGIN <= (remaining or timedelta(0)):
            return True
        problem = (
            f"is {format_duration(timeout)}, which doesn't fit into this function's time;"
            " give it more, or the queue to workers (dispatch.host)"
        )
        path = f"queues.{settings.queue}.execution.handler_timeout"
        self._parts.on_error(ConfigInvalid(path, problem), where=f"serving queue {settings.queue}")
        self._host.metrics.measure("unservable", 1, MetricUnit.Count, queue=settings.queue)
        return False

    # -- helpers and successors --------------------------------------------------------------------

    def _start_helpers(self, settings: QueueSettings, invocation: LambdaInvocation) -> int:
        """Start helpers for the due tasks that one sweep can't take. Returns the number started."""
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

    def _start_helper(
        self, queue: str, share: tuple[int, ...], invocation: LambdaInvocation
    ) -> bool:
        name = helper_reservation(queue, share)
        return self._reservations.acquire(name) and self._start(
            invocation, SweepOrder((queue,), share), [name], where="starting a helper"
        )

    def _start_successor(
        self, report: SweepReport, order: SweepOrder, invocation: LambdaInvocation
    ) -> bool:
        """Start one sweep for the remaining work, unless another sweep has; whether it started."""
        lasts = min(_sweep_time(invocation), SCHEDULED_EVERY)
        wanted = {queue: _reservation_after(queue, order) for queue in report.left}
        if report.left_background_work and order.shards is None:
            wanted[BACKGROUND] = successor_reservation(BACKGROUND)
        acquired = {
            queue: name
            for queue, name in wanted.items()
            if self._reservations.acquire(name, lasts=lasts)
        }
        queues = tuple(queue for queue in acquired if queue != BACKGROUND) or order.queues
        return bool(acquired) and self._start(
            invocation,
            SweepOrder(queues, order.shards),
            list(acquired.values()),
            where="starting the successor",
        )

    def _start(
        self,
        invocation: LambdaInvocation,
        order: SweepOrder,
        acquired: Sequence[str],
        *,
        where: str,
    ) -> bool:
        """Start a sweep under the reservations acquired for it, which a refusal releases."""
        try:
            self._host.start(invocation.function, order.as_event())
        # botocore's errors have no common root. The schedule starts a sweep anyway.
        except Exception as error:  # noqa: BLE001
            self._parts.on_error(error, where=where)
            for name in acquired:
                self._reservations.release(name)
            return False
        return True


def _threshold(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name) or str(_DEFAULT_THRESHOLD)
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ConfigInvalid(name, "must be a whole number of tasks, 1 or more")
    return int(text)


def _sweep_time(invocation: LambdaInvocation) -> timedelta:
    """The part of an invocation's time that it sweeps."""
    return max((invocation.remaining or timedelta(0)) - MARGIN, timedelta(0))


def _reservation_after(queue: str, order: SweepOrder) -> str:
    """The reservation of a successor: a helper's successor takes over the helper's own."""
    if order.shards:
        return helper_reservation(queue, order.shards)
    return successor_reservation(queue)


def _list(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise InputInvalid(name, "must be a list")
    return value


def _shard(value: object) -> int:
    least, most = 0, 99
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputInvalid("shards", f"must be numbers from {least} to {most}")
    return value
