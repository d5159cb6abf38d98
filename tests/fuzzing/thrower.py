"""Throws inputs at a door, one after the other, each made by dice of its own: a number tells all of
it.
"""

import contextlib
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rdq_core.errors import RdqError
from tests.fuzzing.doors import DOORS

_PATIENCE: Final = 10.0
"""Seconds of this process's own time, which other processes don't use up."""
_MOST_MEMORY: Final = 256 * 1024 * 1024
_LONGEST_MESSAGE: Final = 2000


class Hangs(BaseException):
    """An input keeps rdq busy for longer than anybody waits."""


class Wrong(AssertionError):
    """What an input has done that none may do."""

    def __init__(self, name: str, number: int, problem: str) -> None:
        super().__init__(f"{name}, input {number}: {problem}")


def throw(name: str, numbers: range) -> int:
    """How many of the inputs were refused. Raises Wrong."""
    door, refused = DOORS[name], 0
    expected: tuple[type[Exception], ...] = (RdqError, *door.also)
    with bounded():
        for number in numbers:
            given = door.throw(random.Random(f"{name}/{number}"))
            signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE)
            try:
                door.take(given)
            except expected as error:
                refused += 1
                _check_told(name, number, error)
            except BaseException as error:
                raise Wrong(name, number, f"{type(error).__name__}: {str(error)[:300]}") from error
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return refused


def part(asked: tuple[str, range]) -> tuple[str, int, int, str | None]:
    """A part of a long series: the door, how many inputs were thrown, how many refused, and what
    went wrong.
    """
    name, numbers = asked
    try:
        return name, len(numbers), throw(name, numbers), None
    except Wrong as wrong:
        return name, 0, 0, str(wrong)


def _check_told(name: str, number: int, error: Exception) -> None:
    told = str(error)
    if not told.strip():
        raise Wrong(name, number, f"a {type(error).__name__} that says nothing")
    if len(told) > _LONGEST_MESSAGE:
        raise Wrong(
            name, number, f"a {type(error).__name__} of {len(told)} characters: {told[:200]}"
        )


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """No more memory than there is now and a bit, and an end to patience."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    previous = signal.signal(signal.SIGVTALRM, _give_up)
    resource.setrlimit(resource.RLIMIT_AS, (_size() + _MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGVTALRM, previous)


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _give_up(*_signal: Any) -> None:
    raise Hangs(f"more than {_PATIENCE:.0f} s")
