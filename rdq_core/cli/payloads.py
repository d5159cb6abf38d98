"""Payloads on a terminal, which is no file."""

import base64
from typing import Final

from rdq_core.cli.screen import size

_SHOWN_BYTES: Final = 4096


def payload_text(encoded: str) -> str:
    """A payload out of a document: as text where it is some, else as hex; cut when it is long."""
    payload = base64.b64decode(encoded)
    shown, cut = payload[:_SHOWN_BYTES], len(payload) > _SHOWN_BYTES
    try:
        text = shown.decode()
    except UnicodeDecodeError as problem:
        is_torn = cut and problem.start > _SHOWN_BYTES - 4
        text = shown[: problem.start].decode() if is_torn else shown.hex(" ")
    return f"{text} ... ({size(len(payload))} in all; -o json gives it whole)" if cut else text
