"""The signals that a handler raises to decide its outcome.

They are not `RdqError`s: rdq never raises them.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from rdq_core.domain.attempt import Code, Outcome
from rdq_core.domain.limits import MAX_RETRY_AFTER
from rdq_core.domain.units import parse_duration


class Signal(Exception):
    """The root of the signals. `code` is the application's own failure code, `detail` small JSON
    that the history shows.
    """

    def __init__(
        self, code: str, message: str = "", *, detail: Any = None, fingerprint: str | None = None
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code
        self.detail = detail
        self.fingerprint = fingerprint


class Abort(Signal):
    """Fail for good: the task goes to the DLQ at once. `fingerprint` overrides how it is grouped
    there.
    """


class Retryable(Signal):
    """Fail, and retry by the queue's policy."""


class RetryAfter(Signal):
    """Fail, and retry not before a delay. Jitter only adds to it, and `max_backoff` does not
    shorten it.

    `delay` is a timedelta, text with a unit (`"30s"`), or the value of an HTTP `Retry-After`
    header: whole seconds or an HTTP date. At most 30 days. Raises ValueError for anything else.
    """

    def __init__(
        self,
        delay: timedelta | str,
        code: str = Code.FAILED,
        message: str = "",
        *,
        detail: Any = None,
    ) -> None:
        super().__init__(code, message or "asked to be tried again later", detail=detail)
        self.delay = _parse_delay(delay)

    def not_before(self, now: datetime) -> datetime:
        """The earliest next attempt, seen from `now`."""
        wanted = self.delay if isinstance(self.delay, datetime) else now + self.delay
        return min(max(wanted, now), now + MAX_RETRY_AFTER)


def _parse_delay(delay: object) -> timedelta | datetime:
    parsed = _from_text(delay.strip()) if isinstance(delay, str) else delay
    if isinstance(parsed, datetime):
        return parsed
    if not isinstance(parsed, timedelta) or not timedelta(0) <= parsed <= MAX_RETRY_AFTER:
        raise ValueError(
            f"delay: must be 0 to {MAX_RETRY_AFTER.days} days,"
            " as a timedelta, '30s' or an HTTP date"
        )
    return parsed


def _from_text(text: str) -> timedelta | datetime:
    if text.isascii() and text.isdigit():  # delay-seconds of RFC 9110, 10.2.3
        return timedelta(seconds=min(int(text[:12]), 10**9))
    if "," in text:
        moment = _http_date(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return parse_duration(text)


def _http_date(text: str) -> datetime:
    try:
        moment: datetime = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # their messages quote the whole header
        raise ValueError("delay: is no HTTP date that exists") from None
    return moment


OutcomeMapper = Callable[[Any, Exception | None], "Outcome | Signal | None"]
"""A handler's own classification, called with the return value and the exception, one of them None.

It returns an outcome (SUCCESS, RETRYABLE_FAILURE, PERMANENT_FAILURE) or a signal, which decide, or
None to apply the other rules.
"""
