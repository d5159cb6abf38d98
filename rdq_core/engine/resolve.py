"""Settles claims: the write that an attempt's outcome calls for, then the event about it."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import Attempt, AttemptError, Code, Outcome, own_error
from rdq_core.domain.backoff import delay, delay_with_floor, next_attempt_at
from rdq_core.domain.classification import ClassifiedOutcome
from rdq_core.domain.fingerprint import fingerprint
from rdq_core.domain.lease import Claim, Unreached, once_more
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Failure, Task, failure_of
from rdq_core.domain.times import format_time, span_millis
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Clock, EventSink, Jitter, TaskStore
from rdq_core.engine.report import Resolution
from rdq_core.engine.routing import DISPATCH_BACKOFF
from rdq_core.errors import InputInvalid


class Resolver:
    """Settles claims and emits their events. Every method raises LeaseLost when the claim was
    fenced off: nothing was changed then.
    """

    def __init__(
        self, store: TaskStore, *, clock: Clock, jitter: Jitter, events: EventSink, worker: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._events = events
        self._worker = worker

    def resolve(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        classified: ClassifiedOutcome,
        result: Result,
    ) -> Resolution:
        """Record the attempt; complete, reschedule or dead-letter by its outcome and the budget."""
        # One reading for the attempt's end, the backoff and the retention, so that they agree.
        now = self._clock.now()
        attempt = Attempt(
            attempt_no=claim.attempt_no,
            started_at=claim.claimed_at,
            finished_at=now,
            outcome=classified.outcome,
            error=classified.error,
            worker=self._worker,
            fencing_token=claim.fencing_token,
        )
        if classified.error is None:
            try:
                self._store.complete(
                    claim, attempt, result, now=now, expires_at=now + settings.limits.task_ttl
                )
            except InputInvalid as refused:
                # This store can't hold a result of that size. Nothing was written.
                classified, attempt = _too_large(classified, attempt, refused)
                return self._fail_for_good(task, claim, settings, classified, attempt)
            self._emit_end(EventName.SUCCEEDED, task, claim, classified, attempt)
            return Resolution.COMPLETED
        # From the claim, and not from the loaded task: the claim's condition has checked its row.
        budget_left = claim.task.attempt_count + 1 < settings.retry.max_attempts
        if classified.outcome is Outcome.RETRYABLE_FAILURE and budget_left:
            return self._reschedule(task, claim, settings, classified, attempt)
        return self._fail_for_good(task, claim, settings, classified, attempt)

    def budget_spent(self, task: Task, claim: Claim, settings: QueueSettings) -> Resolution:
        """Dead-letter without running: the budget was spent before the claim, so there is no
        attempt to record.
        """
        error = own_error(
            Code.ATTEMPTS_EXHAUSTED,
            f"{task.attempt_count} attempts are spent, and the queue allows"
            f" {settings.retry.max_attempts}",
        )
        # The short failure, as `failure_of` reads it back from the row: there is no attempt record
        # to hold the numbers.
        failure = failure_of(error.code, None) or _failure(error)
        return self._dead_letter_unrun(task, claim, settings, error, failure, rule="budget")

    def release(
        self,
        task: Task,
        claim: Claim,
        code: str,
        *,
        due_at: datetime,
        unreached: Unreached | None = None,
    ) -> Resolution:
        """Give the claim back without spending budget."""
        self._store.release(
            claim, failure_of(code, None) or Failure(code), due_at=due_at, unreached=unreached
        )
        self.emit(EventName.RELEASED, task, claim, code=code)
        return Resolution.RELEASED

    def not_reached(
        self, task: Task, claim: Claim, settings: QueueSettings, message: str
    ) -> Resolution:
        """Release a task whose function was not reached, for a wait that grows each time. Nothing
        was run, so no attempt is recorded.

        Dead-letters it once the queue's `dispatch_give_up` has passed since the first time.
        """
        now = self._clock.now()
        unreached = once_more(claim.unreached, now)
        if now - unreached.since >= settings.execution.dispatch_give_up:
            error = own_error(
                Code.UNAVAILABLE, f"not reached since {format_time(unreached.since)}: {message}"
            )
            return self._dead_letter_unrun(
                task, claim, settings, error, _failure(error), rule="dispatch"
            )
        due_at = next_attempt_at(
            now, delay(DISPATCH_BACKOFF, unreached.times, self._jitter.fraction())
        )
        return self.release(task, claim, Code.UNAVAILABLE, due_at=due_at, unreached=unreached)

    def lost(self, task: Task, claim: Claim) -> Resolution:
        """Our write was fenced off: another worker has the task, and nothing is written."""
        self.emit(EventName.LOST, task, claim)
        return Resolution.LOST

    def emit(self, name: EventName, task: Task, claim: Claim, **details: Any) -> None:
        """Emit an event about a claimed task."""
        self._events.emit(
            event_of(
                name,
                task,
                attempt_no=claim.attempt_no,
                fencing_token=claim.fencing_token,
                **details,
            )
        )

    # -- the settling writes -----------------------------------------------------------------------

    def _reschedule(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        classified: ClassifiedOutcome,
        attempt: Attempt,
    ) -> Resolution:
        now = attempt.finished_at or self._clock.now()
        failures, jitter = claim.task.attempt_count + 1, self._jitter.fraction()
        policy = settings.retry.policy
        wait = (
            delay(policy, failures, jitter)
            if classified.not_before is None
            else delay_with_floor(policy, failures, jitter, classified.not_before - now)
        )
        due_at = next_attempt_at(now, wait)
        # If this write is in doubt and fails, no event is emitted: the lease lapses, and the next
        # claim shows which of the two has happened.
        self._store.reschedule(claim, attempt, _failure(attempt.error), due_at=due_at)
        self._emit_end(
            EventName.RETRY_SCHEDULED,
            task,
            claim,
            classified,
            attempt,
            delay_ms=span_millis(wait),
        )
        return Resolution.RESCHEDULED

    def _fail_for_good(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        classified: ClassifiedOutcome,
        attempt: Attempt,
    ) -> Resolution:
        error = attempt.error or own_error(Code.FAILED, "failed")
        now = attempt.finished_at or self._clock.now()
        self._store.dead_letter(
            claim,
            attempt,
            _failure(error),
            now=now,
            fingerprint=fingerprint(task.handler_ref, error, override=classified.fingerprint),
            expires_at=dead_until(settings, now),
        )
        self._emit_end(EventName.DEAD_LETTERED, task, claim, classified, attempt)
        return Resolution.DEAD_LETTERED

    def _dead_letter_unrun(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        error: AttemptError,
        failure: Failure,
        *,
        rule: str,
    ) -> Resolution:
        now = self._clock.now()
        self._store.dead_letter(
            claim,
            None,
            failure,
            now=now,
            fingerprint=fingerprint(task.handler_ref, error),
            expires_at=dead_until(settings, now),
        )
        self.emit(
            EventName.DEAD_LETTERED,
            task,
            claim,
            rule=rule,
            code=error.code,
            error_type=error.type,
        )
        return Resolution.DEAD_LETTERED

    def _emit_end(
        self,
        name: EventName,
        task: Task,
        claim: Claim,
        classified: ClassifiedOutcome,
        attempt: Attempt,
        delay_ms: int | None = None,
    ) -> None:
        self.emit(
            name,
            task,
            claim,
            outcome=classified.outcome,
            rule=classified.rule,
            code=attempt.error.code if attempt.error else None,
            error_type=attempt.error.type if attempt.error else None,
            duration_ms=span_millis(
                (attempt.finished_at or attempt.started_at) - attempt.started_at
            ),
            delay_ms=delay_ms,
        )


def _too_large(
    classified: ClassifiedOutcome, attempt: Attempt, refused: InputInvalid
) -> tuple[ClassifiedOutcome, Attempt]:
    error = own_error(Code.OUTPUT_TOO_LARGE, refused.message)
    failed = replace(attempt, outcome=Outcome.PERMANENT_FAILURE, error=error)
    failure = replace(classified, outcome=failed.outcome, rule="output_too_large", error=error)
    return failure, failed


def dead_until(settings: QueueSettings, now: datetime) -> datetime | None:
    """When a task that dies now is removed by TTL; None is never."""
    ttl = settings.limits.dead_ttl
    return None if ttl is None else now + ttl


def _failure(error: AttemptError | None) -> Failure:
    return Failure(Code.FAILED) if error is None else Failure(error.code, error.type, error.message)
