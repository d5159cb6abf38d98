"""Short ids: the last letters of an id, enough to tell it from the others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rdq_core.cli.connection import OperatorClient
from rdq_core.errors import InputInvalid, TaskNotFound
from rdq_core.ops.short_ids import WHOLE, is_meant, is_short

_MIN_SHOWN: Final = 8
_MAX_JOBS: Final = 500


def shorten(ids: Iterable[str]) -> Mapping[str, str]:
    """Each id mapped to its last letters, all of the same length and all different."""
    every = sorted(set(ids))
    for length in range(_MIN_SHOWN, WHOLE):
        short = {each: each[-length:] for each in every}
        if len(set(short.values())) == len(every):
            return short
    return {each: each for each in every}


def resolve_id(client: OperatorClient, text: str, queue: str | None = None) -> str:
    """The task id that `text` ends.

    Text that cannot be part of an id is returned as it is: the request then rejects it.
    """
    if not is_short(text):
        return text
    task_id: str = client.request("task.find", short=text, queue=queue)["id"]
    return task_id


def resolve_ids(
    client: OperatorClient, texts: Sequence[str] | None, queue: str | None = None
) -> list[str]:
    """The task ids that these texts end."""
    return [resolve_id(client, text, queue) for text in texts or ()]


def resolve_job_id(client: OperatorClient, text: str) -> str:
    """The id of the listed job that `text` ends. Raises TaskNotFound, InputInvalid if several."""
    if not is_short(text):
        return text
    jobs: Sequence[Mapping[str, Any]] = client.request("job.list", limit=_MAX_JOBS)["items"]
    matches = [str(job["job_id"]) for job in jobs if is_meant(text, job["job_id"])]
    if len(matches) > 1:
        raise InputInvalid(
            "job_id", f"{text} matches {len(matches)} jobs", hint="give more of its letters"
        )
    if not matches:
        raise TaskNotFound(f"no job has an id ending in {text}", hint="rdq job list")
    return matches[0]
