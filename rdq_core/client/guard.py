"""`guard`: a call that falls back to rdq when it fails in a way that may pass.

    call ── returns ────────────────────────────────► Done(value)      no request, no sleep
      │
      └─ raises ─ not in `on`, or permanent ────────► raised
               ─ in a delivery of rdq's ────────────► raised: the task is being tried already
               ─ tries left, time left ─ wait ─► call
               ─ else ─ submit ── stored ───────────► Deferred(id)     the failures are its first attempts
                               ── fails ────────────► raised

The invariant: nobody is told success, or Deferred, for work that is neither done nor kept.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from rdq_core.config.settings import Classification
from rdq_core.domain import limits
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.backoff import BackoffPolicy, delay
from rdq_core.domain.classification import Raised, Rules, Verdict, classify
from rdq_core.domain.guarded import Deferred, Done
from rdq_core.domain.task import Status
from rdq_core.domain.units import parse_duration
from rdq_core.engine.context import current_delivery
from rdq_core.engine.ports import Clock, Jitter, Sleeper, Submission
from rdq_core.errors import ConfigInvalid, RdqError, StoreFailed
from rdq_core.handlers.new_task import NewTask, encoded
from rdq_core.runtime.invocation import find_lambda_context, is_delivery, remaining_of, worker_name

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_WAIT: Final = timedelta(seconds=30)
_TIME_TO_SUBMIT: Final = timedelta(seconds=2)
_CONTEXTS: Final = ("ctx", "context")
_NOT_COMING: Final = (Status.IN_FLIGHT, Status.DEAD, Status.CANCELLED)
"""States of a task with our id, stored by somebody else, in which it won't do the call that has
failed just now.
"""


class Keeper(Protocol):
    """What a guard needs of its `Rdq`."""

    def keep(self, task: NewTask, attempts: tuple[Attempt, ...]) -> Submission:
        """Store the task with the failures that it has had."""
        ...

    def rules(
        self, queue: str
    ) -> tuple[Classification, Mapping[type[BaseException], Outcome]]:
        """How failures are classified: the queue's globs and the classes decided in code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Time and chance."""

    clock: Clock
    jitter: Jitter
    sleeper: Sleeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a guard gives a call to rdq, and as which task. See `Rdq.guard`."""

    queue: str
    handler_ref: str
    on: tuple[type[Exception], ...]
    max_attempts: int
    backoff: BackoffPolicy
    key: Callable[..., str] | None
    payload: Callable[..., object] | None


def policy_of(
    queue: str,
    handler_ref: str,
    *,
    on: object,
    max_attempts: int,
    backoff: str | timedelta,
    key: Callable[..., str] | None,
    payload: Callable[..., object] | None,
) -> Policy:
    """The policy of these arguments. InputInvalid and ConfigInvalid name what is wrong with them."""
    classes = on if isinstance(on, tuple) else (on,)
    if not classes or not all(
        isinstance(cls, type) and issubclass(cls, Exception) for cls in classes
    ):
        raise ConfigInvalid(
            "guard.on", "must be exception classes: those that are worth a later attempt"
        )
    least, most = limits.MAX_ATTEMPTS_RANGE
    if not least <= max_attempts <= most:
        raise ConfigInvalid(
            "guard.max_attempts",
            f"must be {least} to {most}: tries in this process, the first included",
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
    return Policy(
        queue=limits.check_name("queue", queue),
        handler_ref=limits.check_name("handler_ref", handler_ref),
        on=classes,
        max_attempts=max_attempts,
        backoff=BackoffPolicy(initial=initial, maximum=max(initial, _LONGEST_WAIT), jitter=0.2),
        key=key,
        payload=payload,
    )


class Guard:
    """The decorator that `Rdq.guard` answers."""

    def __init__(self, policy: Policy, keeper: Keeper, world: World) -> None:
        self._policy = policy
        self._keeper = keeper
        self._world = world

    def __call__(self, function: Callable[P, R]) -> Callable[P, Done[R] | Deferred]:
        """The guarded function. It answers Done or Deferred, so that nobody takes one for the
        other.
        """
        if inspect.iscoroutinefunction(function):
            path = f"guard.{self._policy.handler_ref}"
            raise ConfigInvalid(
                path, "guards plain functions: an async one fails only when it is awaited"
            )
        payload_of = self._policy.payload or _sole_argument(function, self._policy.handler_ref)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Done[R] | Deferred:
            if current_delivery() is not None:
                return Done(function(*args, **kwargs))
            # Before the call, which may change its argument; and what can't be kept is no surprise
            # at the first outage.
            task = self._task(payload_of(*args, **kwargs), args, kwargs)
            run = _Run(self._policy, self._keeper, self._world, (*args, *kwargs.values()))
            return run.to_end(functools.partial(function, *args, **kwargs), task)

        return guarded

    def _task(self, payload: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewTask:
        policy = self._policy
        content, content_type = encoded(payload)
        key = None if policy.key is None else limits.check_text("key", policy.key(*args, **kwargs))
        return NewTask(
            policy.queue, policy.handler_ref, content, content_type=content_type, key=key
        )


class _Run:
    """One guarded call."""

    def __init__(
        self, policy: Policy, keeper: Keeper, world: World, arguments: tuple[object, ...]
    ) -> None:
        self._policy = policy
        self._keeper = keeper
        self._clock = world.clock
        self._jitter = world.jitter
        self._sleeper = world.sleeper
        self._arguments = arguments
        self._failures: list[Attempt] = []

    def to_end(self, call: Callable[[], R], task: NewTask) -> Done[R] | Deferred:
        while True:
            started_at = self._clock.now()
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
            self._note(verdict, started_at, context)
            if not self._waits_for_another_try(verdict, context):
                return self._defer(error, task, verdict)

    def _verdict(self, error: Exception) -> Verdict:
        try:
            globs, classes = self._keeper.rules(self._policy.queue)
        except (
            StoreFailed
        ):  # then the submit will fail too, and say so; this call may still succeed without rdq
            globs, classes = Classification(), {}
        except RdqError as refused:
            raise refused from error
        rules = Rules(classes=classes, permanent=globs.permanent, retryable=globs.retryable)
        return classify(Raised(error), rules, now=self._clock.now())

    def _note(self, verdict: Verdict, started_at: datetime, context: object | None) -> None:
        self._failures.append(
            Attempt(
                attempt_no=len(self._failures) + 1,
                started_at=started_at,
                finished_at=self._clock.now(),
                outcome=verdict.outcome,
                error=verdict.error,
                worker=worker_name(context),
            )
        )

    def _waits_for_another_try(self, verdict: Verdict, context: object | None) -> bool:
        """Wait for the next try in this process; False, at once, when there is none."""
        if len(self._failures) >= self._policy.max_attempts or verdict.not_before is not None:
            return False
        wait = delay(self._policy.backoff, len(self._failures), self._jitter.fraction())
        remaining = remaining_of(context)
        if remaining is not None and remaining < wait + self._longest_try() + _TIME_TO_SUBMIT:
            return False
        self._sleeper.wait(threading.Event(), wait / timedelta(seconds=1))
        return True

    def _longest_try(self) -> timedelta:
        return max(
            (attempt.finished_at or attempt.started_at) - attempt.started_at
            for attempt in self._failures
        )

    def _defer(self, error: Exception, task: NewTask, verdict: Verdict) -> Deferred:
        try:
            submission = self._keeper.keep(
                _not_before(task, verdict.not_before), tuple(self._failures)
            )
        except RdqError as refused:
            raise refused from error
        if not submission.created and submission.task.status in _NOT_COMING:
            raise error
        return Deferred(submission.task.id)


def _not_before(task: NewTask, moment: datetime | None) -> NewTask:
    return task if moment is None else replace(task, run_at=moment)


def _sole_argument(function: Callable[..., Any], ref: str) -> Callable[..., object]:
    """How to get the one argument of a call, which is then the task's payload. ConfigInvalid when
    there are more.
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in _CONTEXTS]
    if len(names) != 1 or signature.parameters[names[0]].kind in _MANY:
        raise ConfigInvalid(
            f"guard.{ref}",
            f"takes {signature}, so payload= must say what a task of it keeps",
            hint="payload=lambda ...",
        )

    def sole_argument(*args: Any, **kwargs: Any) -> object:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments[names[0]]

    return sole_argument


_MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
