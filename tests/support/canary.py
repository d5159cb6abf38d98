"""Secrets that no log, metric, error, audit record or screen may show, and who finds them wherever
they have got.

with Outlets(capsys) as outlets:
    ...                                  whatever handles tasks that have them
    outlets.hear("audit", records)       what doesn't come out by itself
assert outlets.leaks() == set()
"""

import base64
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, Self

import pytest

from rdq_core.runtime.log import LOGGER

ROOT: Final = Path(__file__).resolve().parents[2]
PAYLOAD: Final = "canary-payload-7f3a9c"
HEADER: Final = "canary-header-51d2e8"
RESULT: Final = "canary-result-c04b77"
VARIABLE: Final = "canary-variable-e96f10"
"""In a local variable of a frame that an exception has come through."""
MESSAGE: Final = "canary-message-2ab8d3"
"""Among an exception's arguments. A task's history has it, and nothing else."""
REFERENCE: Final = "canary-reference-80c5fe"
"""A target, or who has requested the task."""
KINDS: Final = (PAYLOAD, HEADER, RESULT, VARIABLE, MESSAGE, REFERENCE)
SOLD: Final[dict[str, Any]] = {
    "headers": {"customer": HEADER},
    "target": REFERENCE,
    "requested_by": REFERENCE,
}
"""What a submit has of them, its payload aside."""
_OURS: Final = (str(ROOT / "rdq_core"), str(ROOT / "functions"))


def found_in(told: str) -> set[str]:
    """The secrets that are in a text: as they are, in hex, or in base64 at any place of what was
    encoded.
    """
    lower = told.lower()
    return {
        secret
        for secret in KINDS
        if secret in told
        or secret.encode().hex() in lower
        or any(each in told for each in _encoded(secret))
    }


def _encoded(secret: str) -> list[str]:
    """The characters of base64 that a secret alone decides, after 0, 1 and 2 bytes more before it."""
    known = []
    for before in range(3):
        bits = 8 * (before + len(secret))
        known.append(
            base64.b64encode(b"\0" * before + secret.encode())[
                -(-8 * before // 6) : bits // 6
            ].decode()
        )
    return [*known, *(each.replace("+", "-").replace("/", "_") for each in known)]


class Outlets(logging.Handler):
    """Hears what is logged at any level by rdq's code, what is printed, and whatever else it is
    told.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(logging.NOTSET)
        self._capsys = capsys
        self._told: dict[str, list[str]] = defaultdict(list)
        self._levels: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._capsys.readouterr()
        for name in ("", LOGGER):
            logger = logging.getLogger(name)
            self._levels[name] = logger.level
            logger.setLevel(logging.DEBUG)
            logger.addHandler(
                self
            )  # to the second as well: Powertools keeps it from telling the root
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).removeHandler(self)
            logging.getLogger(name).setLevel(level)

    def addFilter(self, _filter: object) -> None:  # noqa: N802 - logging's own name
        """Nobody keeps anything from it, as Powertools does with handlers of the root."""

    def emit(self, record: logging.LogRecord) -> None:
        """Whoever formats a record may use all of it."""
        if record.pathname.startswith(_OURS) or record.name.split(".")[0] == LOGGER:
            self.hear("log", record.getMessage(), vars(record), *_variables(record))

    def hear(self, outlet: str, *told: object) -> None:
        """What has come out there."""
        self._told[outlet] += map(str, told)

    def heard(self, outlet: str) -> list[str]:
        """All that has come out there."""
        self._take_what_was_printed()
        return self._told[outlet]

    def leaks(self) -> set[tuple[str, str]]:
        """Each outlet where a secret has come out, with the secret."""
        self._take_what_was_printed()
        return {
            (outlet, secret)
            for outlet, told in self._told.items()
            for each in told
            for secret in found_in(each)
        }

    def _take_what_was_printed(self) -> None:
        out, err = self._capsys.readouterr()
        for line in out.splitlines():
            self.hear("metric" if '"_aws"' in line else "stdout", line)
        self.hear("stderr", err)


def told_of(error: BaseException) -> list[str]:
    """All that an error says: its message, its arguments, its hint, and those that it was raised
    for.
    """
    said = [str(error), repr(error), str(vars(error)), *getattr(error, "__notes__", ())]
    return [*said, *(told_of(error.__cause__) if error.__cause__ is not None else [])]


def _variables(record: logging.LogRecord) -> list[str]:
    """What a logged exception says, with its traceback's text."""
    if not record.exc_info or record.exc_info[1] is None:
        return []
    return [logging.Formatter().formatException(record.exc_info), *told_of(record.exc_info[1])]
