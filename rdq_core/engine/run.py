"""One run: a claimed task to one durable resolution.

Events are told only after the write that made them true. A write that is fenced off makes the run
`lost`, and nothing else.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from rdq_core.config.settings import QueueSettings, VersionMismatch
from rdq_core.domain.attempt import Code, Outcome, own_error, type_name
from rdq_core.domain.classification import Raised, Returned, Rules, Verdict, classify
from rdq_core.domain.guarded import Deferred, Done
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.limits import MAX_RESULT_BYTES
from rdq_core.domain.task import Task
from rdq_core.engine.context import CancelReason, TaskContext
from rdq_core.engine.events import EventName
from rdq_core.engine.execution import Execution
from rdq_core.engine.ports import Clock, ErrorSink, Handler, Sleeper
from rdq_core.engine.report import Resolution
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.routing import Router, Undelivered
from rdq_core.engine.stopping import Stop
from rdq_core.errors import CorruptItem, InputInvalid, LeaseLost, OutputInvalid, StoreFailed

_AGAIN_AFTER: Final = timedelta(seconds=1)
"""When a task is due again that this host could not start: some host, or this one, will have
recovered by then.
"""


def _nothing() -> None:
    """The end of a run that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run came to its end: a verdict to record, a claim to release under a code, or a lease
    that was lost.

    `not_reached` says why a handler function has not run at all.
    """

    verdict: Verdict | None = None
    result: Result = NO_RESULT
    release: Code | None = None
    not_reached: str | None = None


class Held(Protocol):
    """What a run needs of the store: a `TaskStore` has it."""

    def load(self, claim: Claim) -> Task:
        """The claimed task with all it has."""
        ...

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """Hold the claim until then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run works with."""

    store: Held
    router: Router
    resolver: Resolver
    clock: Clock
    sleeper: Sleeper
    on_error: ErrorSink


class Runner:
    """Runs claimed tasks on this host's handlers, one call a task, from as many threads as one
    likes.
    """

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts

    def run(
        self,
        claim: Claim,
        settings: QueueSettings,
        stop: Stop,
        *,
        handler_gone: Callable[[], None] = _nothing,
        on_unreached: Callable[[], None] = _nothing,
    ) -> Resolution:
        """Run one claim to its resolution. Never raises for a task's failure, nor for storage's.

        `handler_gone` is called once, when no thread of the handler is left: at the end of the run,
        or long after it when a handler ignores its cancellation. `on_unreached` is called when the
        handler is a function that can't be reached at present.
        """
        run = _Run(self._parts, claim, settings, stop, on_unreached)
        try:
            return run.to_resolution()
        except LeaseLost:
            return self._parts.resolver.lost(run.task, claim)
        except Exception as error:  # noqa: BLE001 - storage failed, or it is a bug
            # The lease will lapse and somebody will reclaim it: nothing is lost but time.
            self._parts.on_error(error, where=f"settling task {claim.task.id}")
            return Resolution.LOST
        finally:
            run.on_handler_gone(handler_gone)

    def judge(
        self,
        claim: Claim,
        settings: QueueSettings,
        stop: Stop,
        *,
        handler_gone: Callable[[], None] = _nothing,
    ) -> Ended:
        """Run one claim, and say how it ended to somebody else who settles it. `handler_gone` is as
        in `run`.
        """
        run = _Run(self._parts, claim, settings, stop, _nothing)
        try:
            return run.to_end()
        finally:
            run.on_handler_gone(handler_gone)


class _Run:
    """The state of one run."""

    def __init__(
        self,
        parts: RunParts,
        claim: Claim,
        settings: QueueSettings,
        stop: Stop,
        on_unreached: Callable[[], None],
    ) -> None:
        self.task = claim.task
        self._parts = parts
        self._resolver = parts.resolver
        self._clock = parts.clock
        self._claim = claim
        self._settings = settings
        self._stop = stop
        self._on_unreached = on_unreached
        self._execution: Execution | None = None

    def to_resolution(self) -> Resolution:
        if self._claim.task.attempt_count >= self._settings.retry.max_attempts:
            return self._resolver.budget_spent(self.task, self._claim, self._settings)
        ended = self._handed_over() if self._hands_over else self.to_end()
        if ended is None:
            return Resolution.HANDED_OVER
        if ended.not_reached is not None:
            self._on_unreached()
            return self._resolver.not_reached(
                self.task, self._claim, self._settings, ended.not_reached
            )
        if ended.verdict is not None:
            return self._resolver.resolve(
                self.task, self._claim, self._settings, ended.verdict, ended.result
            )
        if ended.release is not None:
            due_at = self._clock.now() + (
                _AGAIN_AFTER if ended.release is Code.UNAVAILABLE else timedelta(0)
            )
            unreached = self._claim.unreached
            return self._resolver.release(
                self.task, self._claim, ended.release, due_at=due_at, unreached=unreached
            )
        return self._resolver.lost(self.task, self._claim)

    def on_handler_gone(self, call: Callable[[], None]) -> None:
        if self._execution is None:
            call()
        else:
            self._execution.on_end(call)

    # -- to a function that settles the task itself ------------------------------------------------

    @property
    def _hands_over(self) -> bool:
        return self._parts.router.hands_over(self.task.handler_ref, self._settings)

    def _handed_over(self) -> Ended | None:
        """None when a function has the claim now. Its answer, and the task's payload, are no affair
        of this run.
        """
        here = self._parts.router.version(self.task.handler_ref, self._settings)
        if (refused := self._pinned_elsewhere(here)) is not None:
            return refused
        if self._stop.requested:
            return Ended(release=Code.WORKER_SHUTDOWN)
        try:
            self._parts.router.hand_over(self._claim, self._settings)
        except Undelivered as undelivered:
            return _undelivered(undelivered)
        return None

    # -- before the handler ------------------------------------------------------------------------

    def to_end(self) -> Ended:
        """The first thing that stands in the way of the handler, or how it ended."""
        try:
            self.task = self._parts.store.load(self._claim)
        except CorruptItem as corrupt:
            return _refused(Code.STORE_FAILED, corrupt.message)
        handler = self._parts.router.handler(self.task.handler_ref, self._settings)
        if handler is None:
            return _refused(
                Code.NOT_REGISTERED,
                f"no handler {self.task.handler_ref!r} on the hosts of this queue",
            )
        return self._pinned_elsewhere(handler.version) or self._decoded_and_run(handler)

    def _pinned_elsewhere(self, here: str | None) -> Ended | None:
        """The refusal of a task that is pinned to another version than runs here, where the queue
        wants that.
        """
        pinned = self.task.handler_version
        if self._settings.version_mismatch is VersionMismatch.RUN_LATEST or pinned in (None, here):
            return None
        return _refused(
            Code.VERSION_MISMATCH, f"the task is pinned to version {pinned!r}; here runs {here!r}"
        )

    def _decoded_and_run(self, handler: Handler) -> Ended:
        try:
            value = handler.decode(self.task)
        except InputInvalid as invalid:
            return _refused(Code.INPUT_INVALID, invalid.message)
        except BaseException as broken:  # noqa: BLE001 - validation calls the application's code
            return self._classify(Raised(broken), handler)
        return self._run_handler(handler, value)

    # -- the handler -------------------------------------------------------------------------------

    def _run_handler(self, handler: Handler, value: object) -> Ended:
        if self._stop.requested:
            return Ended(release=Code.WORKER_SHUTDOWN)
        changed = threading.Event()
        context = TaskContext(
            self.task,
            self._claim,
            deadline=self._claim.claimed_at + self._settings.execution.handler_timeout,
            clock=self._clock,
            extend=self._extend_lease,
        )
        self._execution = execution = Execution(handler, value, context, changed=changed)
        with self._stop.waking(changed):
            try:
                execution.start()
            except RuntimeError as no_thread:
                self._parts.on_error(no_thread, where=f"starting task {self.task.id}")
                return Ended(release=Code.UNAVAILABLE)
            self._watch(execution, context, changed)
        reason = context.reason
        context.cancel(
            CancelReason.LEASE_LOST
        )  # also waits for a heartbeat of the handler that is under way
        return self._judge(execution, reason, handler, gave_up=context.gave_up)

    def _watch(self, execution: Execution, context: TaskContext, changed: threading.Event) -> None:
        """Until the handler has ended or nobody waits for it any longer: keep its lease and its
        time.
        """
        every = self._settings.execution.heartbeat_every
        next_beat = None if every is None else self._claim.claimed_at + every
        while True:
            changed.clear()
            now = self._clock.now()
            if execution.ended or self._is_abandoned(context, execution, now):
                return
            if every is not None and next_beat is not None and now >= next_beat:
                next_beat = now + every
                self._beat(context, execution)
                continue
            until = min(
                moment
                for moment in (context.deadline, next_beat, self._stop.deadline)
                if moment is not None
            )
            self._parts.sleeper.wait(changed, max((until - now) / timedelta(seconds=1), 0.001))

    def _is_abandoned(self, context: TaskContext, execution: Execution, now: datetime) -> bool:
        if self._stop.requested and context.reason is None:
            _cancel(context, execution, CancelReason.SHUTDOWN)
        if context.reason is CancelReason.LEASE_LOST:
            return True
        if now >= context.deadline:
            _cancel(context, execution, CancelReason.TIMEOUT)
            return True
        return (
            self._stop.requested and self._stop.deadline is not None and now >= self._stop.deadline
        )

    def _beat(self, context: TaskContext, execution: Execution) -> None:
        try:
            self._extend_lease()
        except LeaseLost:
            _cancel(context, execution, CancelReason.LEASE_LOST)
            self._resolver.tell(EventName.HEARTBEAT_LOST, self.task, self._claim)
        except StoreFailed as failed:
            # The lease may lapse now, but it may also hold: the next beat, or the settling write,
            # will show.
            self._parts.on_error(failed, where=f"heartbeat of task {self.task.id}")

    def _extend_lease(self) -> None:
        self._parts.store.heartbeat(self._claim, self._clock.now() + self._settings.execution.lease)

    # -- after the handler -------------------------------------------------------------------------

    def _judge(
        self, execution: Execution, reason: CancelReason | None, handler: Handler, *, gave_up: bool
    ) -> Ended:
        if reason is CancelReason.LEASE_LOST:
            return Ended()
        end = execution.end
        if isinstance(end, Raised) and isinstance(end.exception, Undelivered):
            return _undelivered(end.exception)
        if reason is CancelReason.SHUTDOWN and (end is None or gave_up or _is_cancellation(end)):
            return Ended(release=Code.WORKER_SHUTDOWN)
        if end is None or reason is CancelReason.TIMEOUT:
            return _refused(
                Code.TIMEOUT,
                f"not done within {self._settings.execution.handler_timeout}",
                retryable=True,
            )
        return self._classify(end, handler)

    def _classify(self, end: Returned | Raised, handler: Handler) -> Ended:
        if isinstance(end, Returned) and isinstance(end.value, Deferred):
            message = "the handler answered Deferred: the work was put off, not done"
            return _refused(Code.OUTCOME_UNKNOWN, message, retryable=True)
        if isinstance(end, Returned) and isinstance(end.value, Done):
            end = Returned(end.value.value)
        rules = Rules(
            mapper=handler.outcome,
            classes=self._parts.router.classes,
            permanent=self._settings.classification.permanent,
            retryable=self._settings.classification.retryable,
        )
        verdict = classify(end, rules, now=self._clock.now())
        if verdict.outcome is not Outcome.SUCCESS or isinstance(end, Raised):
            return Ended(verdict)
        return _with_result(verdict, handler, end.value)


def _with_result(verdict: Verdict, handler: Handler, value: object) -> Ended:
    """The success with what the handler returned; a result that can't be stored is the failure of
    whoever returned it.
    """
    try:
        result = handler.encode(value)
    except OutputInvalid as invalid:
        return _refused(Code.OUTPUT_INVALID, invalid.message)
    except BaseException as broken:  # noqa: BLE001 - serialisation calls the application's code
        return _refused(Code.OUTPUT_INVALID, f"encoding the result raised {type_name(broken)}")
    size = len(result.content or b"")
    if size > MAX_RESULT_BYTES:
        return _refused(
            Code.OUTPUT_TOO_LARGE,
            f"the result is {size} bytes long; at most {MAX_RESULT_BYTES} are stored",
        )
    return Ended(verdict, result)


def _refused(code: Code, message: str, *, retryable: bool = False) -> Ended:
    """A verdict of rdq's own, which no rule of the ladder was asked about."""
    outcome = Outcome.RETRYABLE_FAILURE if retryable else Outcome.PERMANENT_FAILURE
    return Ended(
        Verdict(outcome=outcome, rule=code.removeprefix("task_"), error=own_error(code, message))
    )


def _undelivered(undelivered: Undelivered) -> Ended:
    if undelivered.code is Code.UNAVAILABLE:
        return Ended(not_reached=str(undelivered))
    return _refused(undelivered.code, str(undelivered))


def _cancel(context: TaskContext, execution: Execution, reason: CancelReason) -> None:
    context.cancel(reason)
    execution.interrupt()


def _is_cancellation(end: Returned | Raised) -> bool:
    """Whether the handler ended by heeding its cancellation: by our LeaseLost, or as an event loop
    cancels.
    """
    return isinstance(end, Raised) and isinstance(
        end.exception, (LeaseLost, asyncio.CancelledError)
    )
