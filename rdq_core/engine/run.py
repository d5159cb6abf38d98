"""One run: takes a claimed task to one durable resolution.

    load ─► route ─► decode ─► handler, on its own thread ─► classify ─► settle (Resolver)
                               └ watched from here: heartbeats, deadline, stop

An event is emitted only after the write that made it true. A write that is fenced off ends the run
as `lost`, and does nothing else.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from rdq_core.config.settings import QueueSettings, VersionMismatch
from rdq_core.domain.attempt import Code, Outcome, own_error, type_name
from rdq_core.domain.classification import ClassifiedOutcome, Raised, Returned, Rules, classify
from rdq_core.domain.guarded import Deferred, Done
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.limits import MAX_RESULT_BYTES
from rdq_core.domain.task import Task
from rdq_core.domain.times import earliest
from rdq_core.engine.context import TaskContext
from rdq_core.engine.events import EventName
from rdq_core.engine.execution import Execution
from rdq_core.engine.ports import Clock, ErrorSink, Handler, Sleeper
from rdq_core.engine.report import Resolution
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.routing import Router, Undelivered
from rdq_core.engine.stopping import Cancellation, CancelReason, Stop
from rdq_core.errors import CorruptItem, InputInvalid, LeaseLost, OutputInvalid, StoreFailed

_AGAIN_AFTER: Final = timedelta(seconds=1)
"""When a task that this host could not start is due again: this host may have recovered by then."""


def _do_nothing() -> None:
    """The callback of a caller that needs none."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run has come to, before it is settled. At most one of these is set, and none when the
    lease was lost.

    `classified` is the attempt's outcome, with the handler's `result`; `release` the code to
    release the claim under; `not_reached` why the handler function has not run at all.
    """

    classified: ClassifiedOutcome | None = None
    result: Result = NO_RESULT
    release: Code | None = None
    not_reached: str | None = None


class ClaimStore(Protocol):
    """What a run needs of a `TaskStore`."""

    def load(self, claim: Claim) -> Task:
        """See `TaskStore.load`."""
        ...

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """See `TaskStore.heartbeat`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run works with."""

    store: ClaimStore
    router: Router
    resolver: Resolver
    clock: Clock
    sleeper: Sleeper
    on_error: ErrorSink


class Runner:
    """Runs claimed tasks on this host's handlers, one call a task. Safe between threads."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts

    def run(
        self,
        claim: Claim,
        settings: QueueSettings,
        stop: Stop,
        *,
        on_handler_end: Callable[[], None] = _do_nothing,
        on_unreached: Callable[[], None] = _do_nothing,
    ) -> Resolution:
        """Run one claim and settle it. Never raises for a task's failure, nor for storage's.

        `on_handler_end` is called once, when no thread of the handler is left: at the end of the
        run, or long after it when a handler ignores its cancellation. `on_unreached` is called when
        the handler is a function that can't be reached at present.
        """
        run = _TaskRun(self._parts, claim, settings, stop)
        try:
            return run.to_resolution(on_unreached)
        except LeaseLost:
            return self._parts.resolver.lost(run.task, claim)
        except Exception as error:  # noqa: BLE001 - storage failed, or it is a bug
            # The lease will lapse and the task be reclaimed: nothing is lost but time.
            self._parts.on_error(error, where=f"settling task {claim.task.id}")
            return Resolution.LOST
        finally:
            run.on_handler_end(on_handler_end)

    def execute(
        self,
        claim: Claim,
        settings: QueueSettings,
        stop: Stop,
        *,
        on_handler_end: Callable[[], None] = _do_nothing,
    ) -> RunResult:
        """Run one claim and leave settling it to the caller. `on_handler_end` is as in `run`."""
        run = _TaskRun(self._parts, claim, settings, stop)
        try:
            return run.to_result()
        finally:
            run.on_handler_end(on_handler_end)


class _TaskRun:
    """The state of one run."""

    def __init__(self, parts: RunParts, claim: Claim, settings: QueueSettings, stop: Stop) -> None:
        self.task = claim.task
        self._parts = parts
        self._resolver = parts.resolver
        self._clock = parts.clock
        self._claim = claim
        self._settings = settings
        self._stop = stop
        self._execution: Execution | None = None

    def to_resolution(self, on_unreached: Callable[[], None]) -> Resolution:
        """Run, and settle what came of it."""
        claim, settings, resolver = self._claim, self._settings, self._resolver
        if claim.task.attempt_count >= settings.retry.max_attempts:
            return resolver.budget_spent(self.task, claim, settings)
        if self._parts.router.hands_over(self.task.handler_ref, settings):
            result = self._hand_over()
        else:
            result = self.to_result()
        if result is None:
            return Resolution.HANDED_OVER
        if result.classified is not None:
            return resolver.resolve(self.task, claim, settings, result.classified, result.result)
        if result.not_reached is not None:
            on_unreached()
            return resolver.not_reached(self.task, claim, settings, result.not_reached)
        if result.release is not None:
            wait = _AGAIN_AFTER if result.release is Code.UNAVAILABLE else timedelta(0)
            return resolver.release(
                self.task,
                claim,
                result.release,
                due_at=self._clock.now() + wait,
                unreached=claim.unreached,
            )
        return resolver.lost(self.task, claim)

    def on_handler_end(self, call: Callable[[], None]) -> None:
        """Have `call` called when the handler's thread has ended, or at once if there is none."""
        if self._execution is None:
            call()
        else:
            self._execution.on_end(call)

    # -- to a function that settles the task itself ------------------------------------------------

    def _hand_over(self) -> RunResult | None:
        """None when a function has the claim now. This run then neither loads the task nor sees
        its outcome.
        """
        here = self._parts.router.version(self.task.handler_ref, self._settings)
        if (refused := self._version_mismatch(here)) is not None:
            return refused
        if self._stop.requested:
            return RunResult(release=Code.WORKER_SHUTDOWN)
        try:
            self._parts.router.hand_over(self._claim, self._settings)
        except Undelivered as undelivered:
            return _undelivered(undelivered)
        return None

    # -- before the handler ------------------------------------------------------------------------

    def to_result(self) -> RunResult:
        """Run the handler, unless something before it ends the run."""
        # Loaded after the claim: a body that was edited since the index was read is the new one.
        try:
            self.task = self._parts.store.load(self._claim)
        except CorruptItem as corrupt:
            return _own_failure(Code.STORE_FAILED, corrupt.message)
        handler = self._parts.router.handler(self.task.handler_ref, self._settings)
        if handler is None:
            return _own_failure(
                Code.NOT_REGISTERED,
                f"no handler {self.task.handler_ref!r} on the hosts of this queue",
            )
        if (refused := self._version_mismatch(handler.version)) is not None:
            return refused
        try:
            value = handler.decode(self.task)
        except InputInvalid as invalid:
            return _own_failure(Code.INPUT_INVALID, invalid.message)
        except BaseException as broken:  # noqa: BLE001 - validation calls the application's code
            return self._classify(Raised(broken), handler)
        return self._run_handler(handler, value)

    def _version_mismatch(self, here: str | None) -> RunResult | None:
        """The failure of a task that is pinned to another version than runs here, if the queue
        wants one.
        """
        pinned = self.task.handler_version
        if self._settings.version_mismatch is VersionMismatch.RUN_LATEST or pinned in (None, here):
            return None
        return _own_failure(
            Code.VERSION_MISMATCH, f"the task is pinned to version {pinned!r}; here runs {here!r}"
        )

    # -- the handler -------------------------------------------------------------------------------

    def _run_handler(self, handler: Handler, value: object) -> RunResult:
        if self._stop.requested:
            return RunResult(release=Code.WORKER_SHUTDOWN)
        changed, cancellation = threading.Event(), Cancellation()
        context = TaskContext(
            self.task,
            self._claim,
            deadline=self._claim.claimed_at + self._settings.execution.handler_timeout,
            clock=self._clock,
            extend=self._extend_lease,
            cancellation=cancellation,
        )
        self._execution = execution = Execution(handler, value, context, changed=changed)
        with self._stop.waking(changed):
            try:
                execution.start()
            except RuntimeError as no_thread:
                self._parts.on_error(no_thread, where=f"starting task {self.task.id}")
                return RunResult(release=Code.UNAVAILABLE)
            self._watch(execution, cancellation, context.deadline, changed)
        reason = cancellation.reason
        # From here on the handler can't extend the lease: cancelling waits for a heartbeat of its
        # own that is under way.
        cancellation.cancel(CancelReason.LEASE_LOST)
        return self._result_of(execution, reason, handler, gave_up=cancellation.noticed)

    def _watch(
        self,
        execution: Execution,
        cancellation: Cancellation,
        deadline: datetime,
        changed: threading.Event,
    ) -> None:
        """Keep the lease and the time of the handler until it has ended or is given up."""
        every = self._settings.execution.heartbeat_every
        next_beat = None if every is None else self._claim.claimed_at + every
        while True:
            # Cleared before the state is read, so that no change in between is missed.
            changed.clear()
            now = self._clock.now()
            if execution.ended or self._is_given_up(cancellation, execution, deadline, now):
                return
            if every is not None and next_beat is not None and now >= next_beat:
                # From now, not from the last due time: after a pause one heartbeat is enough.
                next_beat = now + every
                self._beat(cancellation, execution)
                continue
            until = earliest((deadline, next_beat, self._stop.deadline)) or deadline
            # A millisecond at least: times are cut to milliseconds, so `until` may equal `now`.
            self._parts.sleeper.wait(changed, max((until - now) / timedelta(seconds=1), 0.001))

    def _is_given_up(
        self, cancellation: Cancellation, execution: Execution, deadline: datetime, now: datetime
    ) -> bool:
        """Whether to wait for the handler no longer. Cancels it when there is a reason to."""
        if self._stop.requested and cancellation.reason is None:
            _cancel(cancellation, execution, CancelReason.SHUTDOWN)
        if cancellation.reason is CancelReason.LEASE_LOST:
            return True
        if now >= deadline:
            _cancel(cancellation, execution, CancelReason.TIMEOUT)
            return True
        return (
            self._stop.requested and self._stop.deadline is not None and now >= self._stop.deadline
        )

    def _beat(self, cancellation: Cancellation, execution: Execution) -> None:
        try:
            self._extend_lease()
        except LeaseLost:
            _cancel(cancellation, execution, CancelReason.LEASE_LOST)
            self._resolver.emit(EventName.HEARTBEAT_LOST, self.task, self._claim)
        except StoreFailed as failed:
            # The lease may lapse now, or hold all the same: the next heartbeat, or the settling
            # write, will show.
            self._parts.on_error(failed, where=f"heartbeat of task {self.task.id}")

    def _extend_lease(self) -> None:
        self._parts.store.heartbeat(self._claim, self._clock.now() + self._settings.execution.lease)

    # -- after the handler -------------------------------------------------------------------------

    def _result_of(
        self, execution: Execution, reason: CancelReason | None, handler: Handler, *, gave_up: bool
    ) -> RunResult:
        """What the run has come to. The order counts: a lost lease outweighs everything, and a
        handler that ended by itself before it noticed a stop has done its work.
        """
        if reason is CancelReason.LEASE_LOST:
            return RunResult()
        end = execution.end
        if isinstance(end, Raised) and isinstance(end.exception, Undelivered):
            return _undelivered(end.exception)
        if reason is CancelReason.SHUTDOWN and (end is None or gave_up or _is_cancellation(end)):
            return RunResult(release=Code.WORKER_SHUTDOWN)
        if end is None or reason is CancelReason.TIMEOUT:
            return _own_failure(
                Code.TIMEOUT,
                f"not done within {self._settings.execution.handler_timeout}",
                retryable=True,
            )
        return self._classify(end, handler)

    def _classify(self, end: Returned | Raised, handler: Handler) -> RunResult:
        if isinstance(end, Returned) and isinstance(end.value, Deferred):
            message = "the handler returned Deferred: the work was put off, not done"
            return _own_failure(Code.OUTCOME_UNKNOWN, message, retryable=True)
        if isinstance(end, Returned) and isinstance(end.value, Done):
            end = Returned(end.value.value)
        rules = Rules(
            mapper=handler.outcome,
            classes=self._parts.router.handlers.classes,
            permanent=self._settings.classification.permanent,
            retryable=self._settings.classification.retryable,
        )
        classified = classify(end, rules, now=self._clock.now())
        if classified.outcome is not Outcome.SUCCESS or isinstance(end, Raised):
            return RunResult(classified)
        return _with_result(classified, handler, end.value)


def _with_result(classified: ClassifiedOutcome, handler: Handler, value: object) -> RunResult:
    """A success with the encoded return value; one that can't be stored makes it a failure."""
    try:
        result = handler.encode(value)
    except OutputInvalid as invalid:
        return _own_failure(Code.OUTPUT_INVALID, invalid.message)
    except BaseException as broken:  # noqa: BLE001 - serialisation calls the application's code
        return _own_failure(Code.OUTPUT_INVALID, f"encoding the result raised {type_name(broken)}")
    size = len(result.content or b"")
    if size > MAX_RESULT_BYTES:
        return _own_failure(
            Code.OUTPUT_TOO_LARGE,
            f"the result is {size} bytes long; at most {MAX_RESULT_BYTES} are stored",
        )
    return RunResult(classified, result)


def _own_failure(code: Code, message: str, *, retryable: bool = False) -> RunResult:
    """A failure that rdq itself found. No classification rule applies to it."""
    outcome = Outcome.RETRYABLE_FAILURE if retryable else Outcome.PERMANENT_FAILURE
    rule = code.removeprefix("task_")
    return RunResult(ClassifiedOutcome(outcome=outcome, rule=rule, error=own_error(code, message)))


def _undelivered(undelivered: Undelivered) -> RunResult:
    if undelivered.code is Code.UNAVAILABLE:
        return RunResult(not_reached=str(undelivered))
    return _own_failure(undelivered.code, str(undelivered))


def _cancel(cancellation: Cancellation, execution: Execution, reason: CancelReason) -> None:
    cancellation.cancel(reason)
    execution.interrupt()


def _is_cancellation(end: Returned | Raised) -> bool:
    """Whether the handler ended because it was cancelled: by our LeaseLost, or as an event loop
    cancels.
    """
    return isinstance(end, Raised) and isinstance(
        end.exception, (LeaseLost, asyncio.CancelledError)
    )
