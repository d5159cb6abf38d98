from datetime import UTC, datetime, timedelta

import pytest

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.classification import ClassifiedOutcome, Raised, Returned, Rules, classify
from rdq_core.domain.outcome import Abort, Retryable, RetryAfter

NOW = datetime(2026, 7, 20, 12, tzinfo=UTC)
PERMANENT, RETRYABLE = Outcome.PERMANENT_FAILURE, Outcome.RETRYABLE_FAILURE


class CardError(Exception):
    pass


class CardDeclined(CardError):
    pass


def judged(exception: BaseException, **rules: object) -> ClassifiedOutcome:
    return classify(Raised(exception), Rules(**rules), now=NOW)  # type: ignore[arg-type]


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_a_return_is_success_and_an_exception_is_retryable() -> None:
    assert classify(Returned(None), Rules(), now=NOW).outcome is Outcome.SUCCESS
    verdict = judged(ValueError("x"))
    assert (verdict.outcome, verdict.rule) == (RETRYABLE, "default")


@pytest.mark.parametrize(
    ("exception", "outcome", "rule", "code"),
    [
        (Abort("declined"), PERMANENT, "signal:Abort", "declined"),
        (Retryable("busy"), RETRYABLE, "signal:Retryable", "busy"),
        (RetryAfter("30s", "slow"), RETRYABLE, "signal:RetryAfter", "slow"),
        (Abort("Not A Code"), PERMANENT, "signal:Abort", "task_failed"),
        (caused(RuntimeError("wrapped"), Abort("declined")), PERMANENT, "signal:Abort", "declined"),
        (
            caused(RuntimeError(), caused(ValueError(), Retryable("busy"))),
            RETRYABLE,
            "signal:Retryable",
            "busy",
        ),
    ],
)
def test_signals_speak_for_themselves_and_through_their_causes(
    exception: Exception, outcome: Outcome, rule: str, code: str
) -> None:
    verdict = judged(exception, permanent=["*"], classes={Exception: PERMANENT})
    assert verdict.error is not None
    assert (verdict.outcome, verdict.rule, verdict.error.code) == (outcome, rule, code)


def test_a_signal_raised_while_handling_another_error_is_not_hidden_by_it() -> None:
    signal = Abort("declined")
    signal.__context__ = ValueError("unrelated")
    assert judged(signal).rule == "signal:Abort"


def test_the_nearest_registered_class_decides() -> None:
    classes = {CardError: RETRYABLE, CardDeclined: PERMANENT}
    assert judged(CardDeclined(), classes=classes).outcome is PERMANENT
    assert judged(CardError(), classes=classes).rule == "class:CardError"


def test_a_permanent_glob_wins_over_a_retryable_one_on_the_full_type_name() -> None:
    both = {"permanent": ["*.CardDeclined"], "retryable": ["*Card*"]}
    assert judged(CardDeclined(), **both).rule == "glob:*.CardDeclined"
    assert judged(CardError(), **both).outcome is RETRYABLE


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Outcome.SUCCESS, Outcome.SUCCESS),
        (PERMANENT, PERMANENT),
        (Abort("no"), PERMANENT),
        (Retryable("x"), RETRYABLE),
    ],
)
def test_the_mapper_decides_before_everything_else(answer: object, outcome: Outcome) -> None:
    verdict = judged(Abort("declined"), mapper=lambda _value, _error: answer)
    assert (verdict.outcome, verdict.rule) == (outcome, "mapper")


def test_a_mapper_without_an_opinion_leaves_it_to_the_others() -> None:
    assert judged(Abort("declined"), mapper=lambda _value, _error: None).rule == "signal:Abort"


@pytest.mark.parametrize("answer", ["SUCCESS", Outcome.LEASE_EXPIRED, 7])
def test_a_mapper_that_answers_nonsense_is_a_failure_and_never_success(answer: object) -> None:
    verdict = classify(Returned(1), Rules(mapper=lambda _value, _error: answer), now=NOW)  # type: ignore[arg-type, return-value]
    assert verdict.error is not None
    assert (verdict.outcome, verdict.error.code) == (RETRYABLE, "task_outcome_unknown")


def test_a_mapper_that_raises_is_itself_the_failure() -> None:
    verdict = classify(Returned(1), Rules(mapper=lambda _value, _error: 1 / 0), now=NOW)  # type: ignore[arg-type, return-value]
    assert verdict.error is not None
    assert (verdict.outcome, verdict.error.type) == (RETRYABLE, "ZeroDivisionError")


@pytest.mark.parametrize(
    ("delay", "floor"),
    [
        ("30s", timedelta(seconds=30)),
        (timedelta(minutes=2), timedelta(minutes=2)),
        ("120", timedelta(seconds=120)),
        ("Mon, 20 Jul 2026 12:00:45 GMT", timedelta(seconds=45)),
        ("Mon, 20 Jul 2026 11:00:00 GMT", timedelta(0)),
        ("Mon, 20 Jul 2036 11:00:00 GMT", timedelta(days=30)),
    ],
)
def test_retry_after_reads_durations_and_what_http_sends(
    delay: str | timedelta, floor: timedelta
) -> None:
    assert judged(RetryAfter(delay)).not_before == NOW + floor


@pytest.mark.parametrize(
    "delay", ["soon", "-1s", timedelta(seconds=-1), timedelta(days=31), 30, None, "Mon, 99 Foo"]
)
def test_retry_after_refuses_what_is_no_delay(delay: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        RetryAfter(delay)  # type: ignore[arg-type]


def test_a_fingerprint_given_by_the_handler_reaches_the_verdict() -> None:
    assert judged(Abort("declined", fingerprint="bank down")).fingerprint == "bank down"
