"""How commands that change tasks end: what was left as it was, and the exit code that follows from
it.
"""

from collections.abc import Mapping
from typing import Any

from rdq_core.cli.failures import CONFLICT, UNAVAILABLE, tell
from rdq_core.cli.screen import note
from rdq_core.errors import RdqError


def left(done: Mapping[str, Any]) -> str:
    """What was not changed, to end a sentence with; empty when all was."""
    return "".join(f", {done[word]:,} {word}" for word in ("skipped", "failed") if done[word])


def refusal(told: Mapping[str, Any]) -> RdqError:
    """A reason out of a document, as an error again."""
    return RdqError(told["message"], code=told["code"], task_id=told["id"], hint=told["hint"])


def ended(done: Mapping[str, Any], *, as_json: bool) -> int | None:
    """The exit code, with the reasons of what was not done on standard error."""
    refusals = done.get("refusals", [])
    for each in refusals[:1] if as_json else refusals:
        tell(refusal(each), as_json=as_json)
    untold = done["skipped"] + done["failed"] - len(refusals)
    if not as_json and refusals and untold > 0:
        note(f"     and {untold:,} more")
    if done["failed"]:
        return UNAVAILABLE
    return CONFLICT if done["skipped"] and not done.get("preview") else None
