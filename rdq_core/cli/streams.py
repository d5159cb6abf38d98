"""Standard output and error where they cannot carry every character: lines become ASCII, and the
rest escapes.
"""

import codecs
import sys
from typing import Final, TextIO

_PLAIN: Final = {"─": "-", "━": "=", "╸": "=", "╺": "=", "…": ".", "\u200e": ""}
_NAME: Final = "rdq.plain"


def prepare_streams() -> None:
    """Let no character end a command: a terminal or pipe without UTF-8 gets a plain one in its
    place.
    """
    codecs.register_error(_NAME, _plain)
    for stream in (sys.stdout, sys.stderr):
        _prepare(stream)


def _prepare(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
    if reconfigure is not None and not encoding.startswith("utf"):
        reconfigure(errors=_NAME)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(
        _PLAIN.get(each, each.encode("unicode_escape").decode()) for each in bad
    ), error.end
