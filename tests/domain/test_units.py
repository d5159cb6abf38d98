"""Durations, sizes and rates as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1s", timedelta(seconds=1)),
        ("10m", timedelta(minutes=10)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("0.1s", timedelta(milliseconds=100)),
        ("0s", timedelta(0)),
    ],
)
def test_a_duration_has_a_number_and_a_unit(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "refused",
    ["60", 60, 1.5, True, None, "", "s", "1 s", " 1s", "1s\n", "1S", "1w", "-1s", "+1s", "1e3s",
     "1_0s", ".5s", "1.s", "1h30m", "nans", "infs", "0.0001s", "0.5ms", "٣s", "9" * 16 + "s",
     "99999d", timedelta(seconds=-1)],
)  # fmt: skip
def test_what_is_no_duration_is_refused(refused: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_duration(refused)


def test_a_timedelta_passes_without_its_microseconds() -> None:
    assert parse_duration(timedelta(seconds=1, microseconds=1500)) == timedelta(
        seconds=1, milliseconds=1
    )


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=60), "1m"),
        (timedelta(seconds=90), "90s"),
        (timedelta(hours=24), "1d"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(0), "0s"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_divides_it(
    span: timedelta, text: str
) -> None:
    assert format_duration(span) == text


@given(st.integers(0, 36_500 * 86_400_000))
def test_a_duration_survives_being_written_and_read(millis: int) -> None:
    span = timedelta(milliseconds=millis)
    assert parse_duration(format_duration(span)) == span


@pytest.mark.parametrize(
    ("given", "size"),
    [(0, 0), (1000, 1000), ("256KiB", 262_144), ("1MiB", 1_048_576), ("0.5KiB", 512)],
)
def test_a_size_is_bytes_or_has_a_binary_unit(given: object, size: int) -> None:
    assert parse_size(given) == size


@pytest.mark.parametrize(
    "refused", ["1024", "1KB", "1MB", "1mib", "1GiB", -1, True, 1.5, None, "0.0001KiB", "1 KiB"]
)
def test_what_is_no_size_is_refused(refused: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_size(refused)


@given(st.integers(0, 2**40))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["100/s", "30/m", "5/h"])
def test_a_rate_is_a_count_in_a_period(text: str) -> None:
    assert format_rate(*parse_rate(text)) == text


@pytest.mark.parametrize(
    "refused", [100, "100", "100/d", "1.5/s", "/s", "-1/s", "100 /s", "100/s\n", None]
)
def test_what_is_no_rate_is_refused(refused: object) -> None:
    with pytest.raises(ValueError, match="must be a rate"):
        parse_rate(refused)
