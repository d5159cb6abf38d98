"""Globs on error types."""

import fnmatch
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdq_core.domain.globs import matches


@pytest.mark.parametrize(
    ("glob", "text"),
    [
        ("botocore.exceptions.*", "botocore.exceptions.ClientError"),
        ("botocore.*", "botocore.exceptions.ClientError"),
        ("*Timeout*", "Timeout"),
        ("*", ""),
        ("", ""),
        ("**", "a"),
        ("?", "*"),
        ("a?c", "a.c"),
        ("*.ValidationError", "app.models.ValidationError"),
        ("*ab", "aab"),
        ("a*b*c", "a.b.b.c"),
        ("*", "first line\nsecond line"),
        ("a?b", "a\nb"),
        ("[abc]", "[abc]"),
        ("a.c", "a.c"),
        ("*", "*"),
    ],
)
def test_a_glob_describes_the_text(glob: str, text: str) -> None:
    assert matches(glob, text)


@pytest.mark.parametrize(
    ("glob", "text"),
    [
        ("timeout", "Timeout"),
        ("Timeout", "Timeout\n"),
        ("Timeout", "ReadTimeout"),
        ("Timeout*", "ReadTimeout"),
        ("?", ""),
        ("a?", "a"),
        ("", "a"),
        ("[abc]", "a"),
        ("[!a]", "b"),
        ("a.c", "abc"),
        ("*.ValidationError", "ValidationError"),
        ("a*b", "a"),
    ],
)
def test_a_glob_does_not_describe_the_text(glob: str, text: str) -> None:
    assert not matches(glob, text)


@given(st.text("ab.*?\n", max_size=8), st.text("ab.\n", max_size=12))
def test_globs_agree_with_a_regular_expression(glob: str, text: str) -> None:
    pattern = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in glob)
    assert matches(glob, text) == (re.fullmatch(pattern, text, re.DOTALL) is not None)


@given(st.text(max_size=40))
def test_a_text_without_wildcards_describes_itself_alone(text: str) -> None:
    plain = text.replace("*", "").replace("?", "")
    assert matches(plain, plain)
    assert not matches(plain, plain + "x")


class Counted(str):
    """Counts how often a character of it is looked at."""

    __slots__ = ("looks",)

    def __getitem__(self, place: Any) -> str:
        self.looks = getattr(self, "looks", 0) + 1
        return super().__getitem__(place)


def test_many_stars_against_a_long_text_take_no_more_than_the_one_times_the_other() -> None:
    glob, text = "*a" * 100 + "b", Counted("a" * 2000)
    assert not matches(glob, text)
    assert text.looks <= len(glob) * len(text)


def test_brackets_mean_nothing_here_unlike_in_file_names() -> None:
    assert fnmatch.fnmatchcase("a", "[a]")
    assert not matches("[a]", "a")
