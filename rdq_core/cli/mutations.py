"""How commands that change tasks end: what was left as it was, and the exit code that follows from it."""

from rdq_core.cli.failures import CONFLICT, UNAVAILABLE, tell
from rdq_core.cli.screen import note
from rdq_core.ops.mutation import Mutation


def left(done: Mutation) -> str:
    """What was not changed, to end a sentence with; empty when all was."""
    counts = ((done.skipped, "skipped"), (done.failed, "failed"))
    return "".join(f", {number:,} {word}" for number, word in counts if number)


def ended(done: Mutation, *, as_json: bool) -> int | None:
    """The exit code, with the reasons of what was not done on standard error."""
    for refusal in done.refusals[:1] if as_json else done.refusals:
        tell(refusal, as_json=as_json)
    if not as_json and done.skipped + done.failed > len(done.refusals):
        note(f"     and {done.skipped + done.failed - len(done.refusals)} more")
    if done.failed:
        return UNAVAILABLE
    return CONFLICT if done.skipped else None
