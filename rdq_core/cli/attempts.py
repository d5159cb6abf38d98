"""A task's history as people read it at night: the newest attempt first, equal ones in a row folded
into one.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rdq_core.cli.screen import Screen, failure
from rdq_core.domain.times import parse_time

_LAST_FRAMES: Final = 8

Attempt = Mapping[str, Any]


def tell_attempts(screen: Screen, attempts: Sequence[Attempt], *, stacks: bool) -> None:
    """Print the attempts, then how the newest failed; with `stacks` each whole stack."""
    runs = list(_folded(attempts))
    screen.table(
        ["#", "started", "took", "outcome", "by", "code", "error"],
        [_row(screen, run) for run in runs],
        stretch=6,
    )
    for run in runs if stacks else runs[:1]:
        _tell_error(screen, run[0], whole=stacks)


def _folded(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    """Runs of attempts that ended the same way, the newest first, and in each run too."""
    for _, run in groupby(reversed(attempts), key=_sameness):
        yield list(run)


def _sameness(attempt: Attempt) -> tuple[Any, ...]:
    error = attempt["error"] or {}
    told = (error.get("type"), error.get("code"), error.get("message"), error.get("stack"))
    return (attempt["outcome"], *told)


def _row(screen: Screen, run: Sequence[Attempt]) -> tuple[object, ...]:
    newest, oldest = run[0], run[-1]
    error = newest["error"]
    started = screen.moment(newest["started_at"])
    number = (
        str(newest["attempt_no"])
        if newest is oldest
        else f"{oldest['attempt_no']}-{newest['attempt_no']}"
    )
    return (
        number,
        started and started.partition(" ")[2],
        _took(run),
        newest["outcome"].removesuffix("_FAILURE"),
        _worker(run),
        None if error is None else error["code"],
        None if error is None else failure(error["type"], error["message"]),
    )


def _took(run: Sequence[Attempt]) -> str:
    """How long it took; of several the shortest and the longest."""
    spans = [_seconds(attempt) for attempt in run]
    known = [span for span in spans if span is not None]
    if not known:
        return "?"
    least, most = min(known), max(known)
    return f"{most:.2f}s" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f}-{most:.2f}s"


def _seconds(attempt: Attempt) -> float | None:
    if attempt["finished_at"] is None:
        return None
    return (
        parse_time(attempt["finished_at"], "time") - parse_time(attempt["started_at"], "time")
    ).total_seconds()


def _worker(run: Sequence[Attempt]) -> str | None:
    """Who ran it: the end of the name, which tells hosts apart; of several how many there were."""
    workers = list(dict.fromkeys(attempt["worker"] for attempt in run))
    if len(workers) > 1:
        return f"{len(workers)} hosts"
    return workers[0] and str(workers[0]).removeprefix("lambda:")


def _tell_error(screen: Screen, attempt: Attempt, *, whole: bool) -> None:
    error = attempt["error"]
    if error is None:
        return
    screen.line()
    screen.line(f"#{attempt['attempt_no']} {error['type']}: {error['message'] or ''}")
    lines = (error["stack"] or "").rstrip().splitlines()
    for line in lines if whole else lines[-_LAST_FRAMES:]:
        screen.line(f"  {line}")
    if not whole and len(lines) > _LAST_FRAMES:
        screen.line(f"  ({len(lines) - _LAST_FRAMES} lines above: --stacks)")
