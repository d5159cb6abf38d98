"""`guard`: a call becomes a task when it fails in a way that a later attempt may not.

    call ── returns ────────────────────────────────► Done(value)      no request, no sleep
      │
      └─ raises ─ not in `on`, or permanent ────────► raised
               ─ called by an rdq handler ──────────► raised: the task is being tried already
               ─ tries left, time left ─ wait ─► call
               ─ else ─ submit ── stored ───────────► Deferred(id), the failures its first attempts
                               ── fails ────────────► raised

The invariant: Done is returned only for finished work, Deferred only for a stored task.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypeVar

from rdq_core.client.rdq import draft_of
from rdq_core.config.settings import Classification
from rdq_core.domain import limits
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.backoff import BackoffPolicy, delay
from rdq_core.domain.classification import ClassifiedOutcome, Raised, Rules, classify
from rdq_core.domain.guarded import Deferred, Done
from rdq_core.domain.task import Status
from rdq_core.domain.units import parse_duration
from rdq_core.engine.context import current_delivery
from rdq_core.engine.submit import Draft
from rdq_core.errors import ConfigInvalid, RdqError, StoreFailed
from rdq_core.runtime.invocation import find_lambda_context, is_delivery, remaining_of, worker_name
from rdq_core.runtime.wiring import Parts

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_WAIT: Final = timedelta(seconds=30)
_TIME_TO_SUBMIT: Final = timedelta(seconds=2)
_CONTEXTS: Final = ("ctx", "context")
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_WILL_NOT_RUN: Final = (Status.IN_FLIGHT, Status.DEAD, Status.CANCELLED)
"""Statuses of an existing task with our id that will not make up for the failed call.

It is running now, perhaps as a caller of this function, or it has ended without success.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """When a guard gives a call to rdq, and as which task. See `Rdq.guard`."""

    queue: str
    handler_ref: str
    on: tuple[type[Exception], ...]
    max_attempts: int
    backoff: BackoffPolicy
    key: Callable[..., str] | None
    payload: Callable[..., object] | None


def guard_policy(
    queue: str,
    handler_ref: str,
    *,
    on: object,
    max_attempts: int,
    backoff: str | timedelta,
    key: Callable[..., str] | None,
    payload: Callable[..., object] | None,
) -> GuardPolicy:
    """The policy of these arguments. Raises InputInvalid or ConfigInvalid naming a wrong one."""
    classes = on if isinstance(on, tuple) else (on,)
    if not classes or not all(
        isinstance(cls, type) and issubclass(cls, Exception) for cls in classes
    ):
        raise ConfigInvalid(
            "guard.on", "must be the exception classes for which a later attempt may succeed"
        )
    least, most = limits.MAX_ATTEMPTS_RANGE
    if not least <= max_attempts <= most:
        raise ConfigInvalid(
            "guard.max_attempts",
            f"must be {least} to {most}: attempts in this process, the first included",
        )
    for name, given in (("key", key), ("payload", payload)):
        if given is not None and not callable(given):
            raise ConfigInvalid(
                f"guard.{name}",
                "must be a function of the call's arguments",
                hint=f'{name}=lambda order: order["id"]',
            )
    try:
        initial = parse_duration(backoff)
    except ValueError as problem:
        raise ConfigInvalid("guard.backoff", str(problem)) from None
    return GuardPolicy(
        queue=limits.check_name("queue", queue),
        handler_ref=limits.check_name("handler_ref", handler_ref),
        on=classes,
        max_attempts=max_attempts,
        backoff=BackoffPolicy(initial=initial, maximum=max(initial, _LONGEST_WAIT), jitter=0.2),
        key=key,
        payload=payload,
    )


class Guard:
    """The decorator that `Rdq.guard` returns.

    `classes` are the exception classes that the application's registry classifies.
    """

    def __init__(
        self, policy: GuardPolicy, parts: Parts, classes: Mapping[type[BaseException], Outcome]
    ) -> None:
        self._policy = policy
        self._parts = parts
        self._classes = classes

    def __call__(self, function: Callable[P, R]) -> Callable[P, Done[R] | Deferred]:
        """The guarded function, which returns Done or Deferred."""
        if inspect.iscoroutinefunction(function):
            path = f"guard.{self._policy.handler_ref}"
            raise ConfigInvalid(
                path, "guards plain functions: an async one fails only when it is awaited"
            )
        payload_of = self._policy.payload or _sole_argument(function, self._policy.handler_ref)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Done[R] | Deferred:
            if current_delivery.get() is not None:
                return Done(function(*args, **kwargs))
            # The draft is made before the call, for two reasons: the call may change its argument,
            # and an argument that can't be stored must fail now and not in the first outage.
            draft = self._draft(payload_of(*args, **kwargs), args, kwargs)
            call = _GuardedCall(self._policy, self._parts, self._classes, (*args, *kwargs.values()))
            return call.run(functools.partial(function, *args, **kwargs), draft)

        return guarded

    def _draft(self, payload: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft:
        policy = self._policy
        key = None if policy.key is None else limits.check_text("key", policy.key(*args, **kwargs))
        return draft_of(policy.queue, policy.handler_ref, payload, {"key": key})


class _GuardedCall:
    """One call of a guarded function, with its failures so far."""

    def __init__(
        self,
        policy: GuardPolicy,
        parts: Parts,
        classes: Mapping[type[BaseException], Outcome],
        arguments: tuple[object, ...],
    ) -> None:
        self._policy = policy
        self._parts = parts
        self._classes = classes
        self._arguments = arguments
        self._failures: list[Attempt] = []

    def run(self, call: Callable[[], R], draft: Draft) -> Done[R] | Deferred:
        while True:
            started_at = self._parts.clock.now()
            try:
                return Done(call())
            except self._policy.on as failure:
                error = failure
            context = find_lambda_context(self._arguments)
            if is_delivery(context):
                raise error
            verdict = self._verdict(error)
            if verdict.outcome is not Outcome.RETRYABLE_FAILURE:
                raise error
            self._record(verdict, started_at, context)
            if not self._waits_for_next_try(verdict, context):
                return self._defer(error, draft, verdict)

    def _verdict(self, error: Exception) -> ClassifiedOutcome:
        try:
            globs = self._parts.queues.for_submits(self._policy.queue).classification
        except StoreFailed:
            # The submit will fail as well and raise this error; until then the call may still
            # succeed in this process.
            globs = Classification()
        except RdqError as refusal:
            raise refusal from error
        rules = Rules(classes=self._classes, permanent=globs.permanent, retryable=globs.retryable)
        return classify(Raised(error), rules, now=self._parts.clock.now())

    def _record(
        self, verdict: ClassifiedOutcome, started_at: datetime, context: object | None
    ) -> None:
        self._failures.append(
            Attempt(
                attempt_no=len(self._failures) + 1,
                started_at=started_at,
                finished_at=self._parts.clock.now(),
                outcome=verdict.outcome,
                error=verdict.error,
                worker=worker_name(context),
            )
        )

    def _waits_for_next_try(self, verdict: ClassifiedOutcome, context: object | None) -> bool:
        """Wait and return True if there is another attempt in this process; else return False."""
        if len(self._failures) >= self._policy.max_attempts or verdict.not_before is not None:
            return False
        wait = delay(self._policy.backoff, len(self._failures), self._parts.jitter.fraction())
        remaining = remaining_of(context)
        if remaining is not None and remaining < wait + self._longest_try() + _TIME_TO_SUBMIT:
            return False
        self._parts.idle.wait(threading.Event(), wait / timedelta(seconds=1))
        return True

    def _longest_try(self) -> timedelta:
        return max(
            (attempt.finished_at or attempt.started_at) - attempt.started_at
            for attempt in self._failures
        )

    def _defer(self, error: Exception, draft: Draft, verdict: ClassifiedOutcome) -> Deferred:
        draft = replace(
            draft,
            options={**draft.options, "run_at": verdict.not_before},
            attempts=tuple(self._failures),
        )
        try:
            submission = self._parts.submitter().submit(draft)
        except RdqError as refusal:
            raise refusal from error
        if not submission.created and submission.task.status in _WILL_NOT_RUN:
            raise error
        return Deferred(submission.task.id)


def _sole_argument(function: Callable[..., Any], ref: str) -> Callable[..., object]:
    """A function that returns the one argument of a call, which is the task's payload.

    Raises ConfigInvalid for a function with more arguments than that.
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in _CONTEXTS]
    if len(names) != 1 or signature.parameters[names[0]].kind in _VARIADIC:
        raise ConfigInvalid(
            f"guard.{ref}",
            f"takes {signature}, so payload= must return what the task stores",
            hint="payload=lambda ...",
        )

    def sole_argument(*args: Any, **kwargs: Any) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments[names[0]]

    return sole_argument
