"""Spans of time as tests give them."""

from datetime import timedelta

from rdq_core.domain.units import parse_duration

Span = str | timedelta
"""As in "90s", "2h" or "7d", or a timedelta."""


def span_of(name: str, given: Span) -> timedelta:
    """The timedelta that an argument stands for. Raises ValueError naming the argument."""
    try:
        return parse_duration(given)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None
