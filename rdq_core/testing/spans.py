"""Spans of time as tests give them."""

from datetime import timedelta

from rdq_core.domain.units import parse_duration

Span = str | timedelta
"""As in "90s", "2h" or "7d", or a timedelta."""


def span_of(name: str, given: Span) -> timedelta:
    """The span that an argument means. Raises ValueError, which names the argument, for what is
    none.
    """
    try:
        return parse_duration(given)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None
