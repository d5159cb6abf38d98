"""Ids on a screen and on a command line: as few of their last letters as tell them apart."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rdq_core.cli.connection import Asking
from rdq_core.errors import InputInvalid, TaskNotFound
from rdq_core.ops.short_ids import WHOLE, is_meant, is_short

_FEWEST_SHOWN: Final = 8
_MOST_JOBS: Final = 500


def shortened(ids: Iterable[str]) -> Mapping[str, str]:
    """Each id with its last letters, so many that no two look the same."""
    every = sorted(set(ids))
    for length in range(_FEWEST_SHOWN, WHOLE):
        short = {each: each[-length:] for each in every}
        if len(set(short.values())) == len(every):
            return short
    return {each: each for each in every}


def whole_id(ask: Asking, text: str, queue: str | None = None) -> str:
    """The id that is meant. What can't be the part of one is left to those who read it."""
    if not is_short(text):
        return text
    found: str = ask("task.find", short=text, queue=queue)["id"]
    return found


def whole_ids(ask: Asking, texts: Sequence[str] | None, queue: str | None = None) -> list[str]:
    """The same for several."""
    return [whole_id(ask, text, queue) for text in texts or ()]


def whole_job_id(ask: Asking, text: str) -> str:
    """The same for a job, of those that are listed."""
    if not is_short(text):
        return text
    jobs: Sequence[Mapping[str, Any]] = ask("job.list", limit=_MOST_JOBS)["items"]
    found = [str(job["job_id"]) for job in jobs if is_meant(text, job["job_id"])]
    if len(found) > 1:
        raise InputInvalid(
            "job_id", f"{text} can mean {len(found)} jobs", hint="give more of its letters"
        )
    if not found:
        raise TaskNotFound(f"no job has an id like {text}", hint="rdq job list")
    return found[0]
