"""Turns how a handler ended into an outcome, by the first rule that applies.

1 mapper    the handler's own outcome mapper
2 signal    a signal was raised, itself or through `raise ... from`
3 class     exception classes registered in code, the most specific one
4 glob      the queue's patterns on the error's type; permanent wins
5 default   a return is success, an exception is retryable
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.attempt import (
    AttemptError,
    Code,
    Outcome,
    Reported,
    bounded_detail,
    error_from,
    message_of,
    own_error,
    type_name,
)
from rdq_core.domain.globs import matches
from rdq_core.domain.limits import MAX_MESSAGE_BYTES, MAX_SHORT_TEXT_BYTES, is_failure_code
from rdq_core.domain.outcome import Abort, OutcomeMapper, RetryAfter, Signal
from rdq_core.domain.text import truncate

_MAX_CAUSES: Final = 50


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised `exception`, of any kind."""

    exception: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedOutcome:
    """The outcome of one attempt, with the rule that decided it.

    `not_before` is the earliest next attempt, if the handler gave one; `fingerprint` overrides how
    a failure is grouped.
    """

    outcome: Outcome
    rule: str
    error: AttemptError | None = None
    not_before: datetime | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What classification depends on: the handler's mapper, registered classes, queue globs."""

    mapper: OutcomeMapper | None = None
    classes: Mapping[type[BaseException], Outcome] = field(default_factory=dict)
    permanent: Sequence[str] = ()
    retryable: Sequence[str] = ()


def classify(end: Returned | Raised, rules: Rules, *, now: datetime) -> ClassifiedOutcome:
    """Classify how a handler ended. Never raises: a mapper that raises is itself the failure."""
    if isinstance(end, Raised) and not isinstance(end.exception, Exception):
        return ClassifiedOutcome(
            outcome=Outcome.RETRYABLE_FAILURE, rule="crash", error=error_from(end.exception)
        )
    if rules.mapper is not None:
        mapped = _by_mapper(rules.mapper, end, now)
        if mapped is not None:
            return mapped
    if isinstance(end, Returned):
        return ClassifiedOutcome(outcome=Outcome.SUCCESS, rule="default")
    return _by_exception(end.exception, rules, now)


def _by_mapper(
    mapper: OutcomeMapper, end: Returned | Raised, now: datetime
) -> ClassifiedOutcome | None:
    value = end.value if isinstance(end, Returned) else None
    raised = (
        end.exception if isinstance(end, Raised) and isinstance(end.exception, Exception) else None
    )
    try:
        answer = mapper(value, raised)
    except BaseException as broken:  # noqa: BLE001 - the mapper is the application's code
        return ClassifiedOutcome(
            outcome=Outcome.RETRYABLE_FAILURE, rule="mapper", error=error_from(broken)
        )
    if answer is None:
        return None
    if isinstance(answer, Signal):
        return replace(_by_signal(answer, raised or answer, now), rule="mapper")
    if answer is Outcome.SUCCESS:
        return ClassifiedOutcome(outcome=Outcome.SUCCESS, rule="mapper")
    return _mapped_failure(answer, raised)


def _mapped_failure(answer: Outcome, raised: Exception | None) -> ClassifiedOutcome:
    if answer in (Outcome.RETRYABLE_FAILURE, Outcome.PERMANENT_FAILURE):
        error = (
            error_from(raised)
            if raised
            else own_error(Code.FAILED, "the mapper called the returned value a failure")
        )
        return ClassifiedOutcome(outcome=answer, rule="mapper", error=error)
    unknown = own_error(
        Code.OUTCOME_UNKNOWN, f"the mapper returned a {type(answer).__name__}, which is no outcome"
    )
    return ClassifiedOutcome(outcome=Outcome.RETRYABLE_FAILURE, rule="mapper", error=unknown)


def _by_exception(exception: BaseException, rules: Rules, now: datetime) -> ClassifiedOutcome:
    signal = next((cause for cause in causes(exception) if isinstance(cause, Signal)), None)
    if signal is not None:
        return _by_signal(signal, exception, now)
    outcome, rule = (
        _by_class(exception, rules.classes) or _by_glob(type_name(exception), rules) or _DEFAULT
    )
    return ClassifiedOutcome(outcome=outcome, rule=rule, error=error_from(exception))


_DEFAULT: Final = (Outcome.RETRYABLE_FAILURE, "default")


def causes(exception: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from, nearest first. Bounded, and safe for cycles."""
    seen: set[int] = set()
    current: BaseException | None = exception
    while current is not None and id(current) not in seen and len(seen) < _MAX_CAUSES:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _by_signal(signal: Signal, raised: BaseException, now: datetime) -> ClassifiedOutcome:
    return ClassifiedOutcome(
        outcome=Outcome.PERMANENT_FAILURE
        if isinstance(signal, Abort)
        else Outcome.RETRYABLE_FAILURE,
        rule=f"signal:{type(signal).__name__}",
        error=_signal_error(signal, raised),
        not_before=signal.not_before(now) if isinstance(signal, RetryAfter) else None,
        fingerprint=signal.fingerprint,
    )


def _signal_error(signal: Signal, raised: BaseException) -> AttemptError:
    """The signal's message, code and detail, under the type of the error it was raised from, if
    any.
    """
    origin = next((cause for cause in causes(raised) if not isinstance(cause, Signal)), None)
    kind = type_name(origin) if origin is not None else f"rdq.{type(signal).__name__}"
    described = (
        origin
        if isinstance(origin, Reported)
        else raised
        if isinstance(raised, Exception)
        else signal
    )
    return replace(
        error_from(described),
        type=truncate(kind, MAX_SHORT_TEXT_BYTES),
        code=signal.code if is_failure_code(signal.code) else Code.FAILED,
        message=truncate(message_of(signal), MAX_MESSAGE_BYTES),
        detail=bounded_detail(signal.detail),
    )


def _by_class(
    exception: BaseException, classes: Mapping[type[BaseException], Outcome]
) -> tuple[Outcome, str] | None:
    nearest = next((cls for cls in type(exception).__mro__ if cls in classes), None)
    return None if nearest is None else (classes[nearest], f"class:{nearest.__name__}")


def _by_glob(kind: str, rules: Rules) -> tuple[Outcome, str] | None:
    for globs, outcome in (
        (rules.permanent, Outcome.PERMANENT_FAILURE),
        (rules.retryable, Outcome.RETRYABLE_FAILURE),
    ):
        for glob in globs:
            if matches(glob, kind):
                return outcome, f"glob:{glob}"
    return None
