"""Resolutions: what is done with a task once the outcome of its attempt is known, and what is told
about it then.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import Attempt, AttemptError, Code, Outcome, own_error
from rdq_core.domain.backoff import delay, delay_with_floor, next_attempt_at
from rdq_core.domain.classification import Verdict
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
    """Settles claims and tells of it. Every method raises LeaseLost when the claim was fenced off:
    nothing was changed.
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
        self, task: Task, claim: Claim, settings: QueueSettings, verdict: Verdict, result: Result
    ) -> Resolution:
        """Record the attempt, and complete, reschedule or dead-letter the task as its outcome and
        budget say.
        """
        now = self._clock.now()
        attempt = self._attempt(claim, verdict, now)
        if verdict.error is None:
            return self._complete(task, claim, settings, verdict, attempt, result)
        budget_left = claim.task.attempt_count + 1 < settings.retry.max_attempts
        if verdict.outcome is Outcome.RETRYABLE_FAILURE and budget_left:
            return self._reschedule(task, claim, settings, verdict, attempt)
        return self._dead_letter(task, claim, settings, verdict, attempt)

    def budget_spent(self, task: Task, claim: Claim, settings: QueueSettings) -> Resolution:
        """Dead without running: the budget was found spent, which is a reason and not one more
        attempt.
        """
        error = own_error(
            Code.ATTEMPTS_EXHAUSTED,
            f"{task.attempt_count} attempts are spent and the queue allows {settings.retry.max_attempts}",
        )
        failure = failure_of(error.code, None) or _failure(error)
        self._bury(task, claim, settings, None, error, failure, None)
        self.tell(
            EventName.DEAD_LETTERED,
            task,
            claim,
            rule="budget",
            code=error.code,
            error_type=error.type,
        )
        return Resolution.DEAD_LETTERED

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
        self.tell(EventName.RELEASED, task, claim, code=code)
        return Resolution.RELEASED

    def not_reached(
        self, task: Task, claim: Claim, settings: QueueSettings, message: str
    ) -> Resolution:
        """Give the task back, to be tried again after a while that grows: nothing was run, so it is
        no attempt.

        Dead when the queue's `dispatch_give_up` has passed since it was not reached for the first
        time.
        """
        now = self._clock.now()
        unreached = once_more(claim.unreached, now)
        if now - unreached.since >= settings.execution.dispatch_give_up:
            error = own_error(
                Code.UNAVAILABLE, f"not reached since {format_time(unreached.since)}: {message}"
            )
            self._bury(task, claim, settings, None, error, _failure(error), None)
            self.tell(
                EventName.DEAD_LETTERED,
                task,
                claim,
                rule="dispatch",
                code=error.code,
                error_type=error.type,
            )
            return Resolution.DEAD_LETTERED
        due_at = next_attempt_at(
            now, delay(DISPATCH_BACKOFF, unreached.times, self._jitter.fraction())
        )
        return self.release(task, claim, Code.UNAVAILABLE, due_at=due_at, unreached=unreached)

    def lost(self, task: Task, claim: Claim) -> Resolution:
        """Our write was fenced off: the task is somebody else's, and that is all there is to say."""
        self.tell(EventName.LOST, task, claim)
        return Resolution.LOST

    def tell(self, name: EventName, task: Task, claim: Claim, **details: Any) -> None:
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

    # -- the three settling writes -----------------------------------------------------------------

    def _complete(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        verdict: Verdict,
        attempt: Attempt,
        result: Result,
    ) -> Resolution:
        now = attempt.finished_at or self._clock.now()
        try:
            self._store.complete(
                claim, attempt, result, now=now, expires_at=now + settings.limits.task_ttl
            )
        except (
            InputInvalid
        ) as refused:  # this store can't hold a result of that size; nothing was written
            return self._dead_letter(task, claim, settings, *_too_large(verdict, attempt, refused))
        self._tell_end(EventName.SUCCEEDED, task, claim, verdict, attempt)
        return Resolution.COMPLETED

    def _reschedule(
        self, task: Task, claim: Claim, settings: QueueSettings, verdict: Verdict, attempt: Attempt
    ) -> Resolution:
        now = attempt.finished_at or self._clock.now()
        failures, jitter = claim.task.attempt_count + 1, self._jitter.fraction()
        policy = settings.retry.policy
        wait = (
            delay(policy, failures, jitter)
            if verdict.not_before is None
            else delay_with_floor(policy, failures, jitter, verdict.not_before - now)
        )
        due_at = next_attempt_at(now, wait)
        self._store.reschedule(claim, attempt, _failure(attempt.error), due_at=due_at)
        self._tell_end(
            EventName.RETRY_SCHEDULED, task, claim, verdict, attempt, delay_ms=span_millis(wait)
        )
        return Resolution.RESCHEDULED

    def _dead_letter(
        self, task: Task, claim: Claim, settings: QueueSettings, verdict: Verdict, attempt: Attempt
    ) -> Resolution:
        error = attempt.error or own_error(Code.FAILED, "failed")
        self._bury(task, claim, settings, attempt, error, _failure(error), verdict.fingerprint)
        self._tell_end(EventName.DEAD_LETTERED, task, claim, verdict, attempt)
        return Resolution.DEAD_LETTERED

    def _bury(
        self,
        task: Task,
        claim: Claim,
        settings: QueueSettings,
        attempt: Attempt | None,
        error: AttemptError,
        failure: Failure,
        override: str | None,
    ) -> None:
        now = (
            self._clock.now()
            if attempt is None or attempt.finished_at is None
            else attempt.finished_at
        )
        self._store.dead_letter(
            claim,
            attempt,
            failure,
            now=now,
            fingerprint=fingerprint(task.handler_ref, error, override=override),
            expires_at=dead_until(settings, now),
        )

    def _attempt(self, claim: Claim, verdict: Verdict, now: datetime) -> Attempt:
        return Attempt(
            attempt_no=claim.attempt_no,
            started_at=claim.claimed_at,
            finished_at=now,
            outcome=verdict.outcome,
            error=verdict.error,
            worker=self._worker,
            fencing_token=claim.fencing_token,
        )

    def _tell_end(
        self,
        name: EventName,
        task: Task,
        claim: Claim,
        verdict: Verdict,
        attempt: Attempt,
        delay_ms: int | None = None,
    ) -> None:
        self.tell(
            name,
            task,
            claim,
            outcome=verdict.outcome,
            rule=verdict.rule,
            code=attempt.error.code if attempt.error else None,
            error_type=attempt.error.type if attempt.error else None,
            duration_ms=span_millis(
                (attempt.finished_at or attempt.started_at) - attempt.started_at
            ),
            delay_ms=delay_ms,
        )


def _too_large(
    verdict: Verdict, attempt: Attempt, refused: InputInvalid
) -> tuple[Verdict, Attempt]:
    error = own_error(Code.OUTPUT_TOO_LARGE, refused.message)
    failed = replace(attempt, outcome=Outcome.PERMANENT_FAILURE, error=error)
    return replace(verdict, outcome=failed.outcome, rule="output_too_large", error=error), failed


def dead_until(settings: QueueSettings, now: datetime) -> datetime | None:
    """When a task that dies now is removed; None is never."""
    ttl = settings.limits.dead_ttl
    return None if ttl is None else now + ttl


def _failure(error: AttemptError | None) -> Failure:
    return Failure(Code.FAILED) if error is None else Failure(error.code, error.type, error.message)
