"""Prints one task: its fields, its attempts with their errors, its payload."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rdq_core.cli.output import Output, counted, failure, size
from rdq_core.domain.times import parse_time

_LAST_FRAMES: Final = 8
_SHOWN_BYTES: Final = 4096

Attempt = Mapping[str, Any]


def print_task(output: Output, task: Mapping[str, Any], *, stacks: bool) -> None:
    """Print a task, its newest attempt first. `stacks` adds the whole stack of each attempt."""
    output.line(f"{task['id']}  {task['status']}")
    output.fields(_fields(output, task))
    if task["attempts"]:
        output.line()
        _print_attempts(output, task["attempts"], stacks=stacks)
    if "payload" in task:
        output.line()
        output.line(payload_text(task["payload"]))


def _fields(output: Output, task: Mapping[str, Any]) -> list[tuple[str, object]]:
    reason, redriven, result = task["failure"], task["redrive_count"], task["result"]
    return [
        ("queue", task["queue"]),
        ("handler", " ".join(filter(None, (task["handler_ref"], task["handler_version"])))),
        ("key", task["headers"].get("rdq.key")),
        ("payload", f"{size(task['payload_size'])}, {task['payload_content_type']}"),
        ("submitted", output.moment(task["created_at"])),
        ("due", output.moment(task["next_attempt_at"])),
        ("lease ends", output.moment(task["lease_expires_at"])),
        ("ended", output.moment(task["completed_at"])),
        ("attempts", f"{task['attempt_count']} of this budget, {len(task['attempts'])} in total"),
        ("redriven", counted(redriven, "time") if redriven else None),
        ("failure", None if reason is None else reason["code"]),
        ("result", None if result is None else _result(result, task["result_content_type"])),
    ]


def _result(encoded: str, content_type: str) -> str:
    return f"{size(len(encoded) * 3 // 4)}, {content_type}"


def payload_text(encoded: str) -> str:
    """A payload given in base64: as text if it is UTF-8, else in hex; long ones are cut."""
    payload = base64.b64decode(encoded)
    shown, is_cut = payload[:_SHOWN_BYTES], len(payload) > _SHOWN_BYTES
    try:
        text = shown.decode()
    except UnicodeDecodeError as problem:
        # The cut may fall inside a character, which has at most four bytes.
        is_split = is_cut and problem.start > _SHOWN_BYTES - 4
        text = shown[: problem.start].decode() if is_split else shown.hex(" ")
    return f"{text} ... (of {size(len(payload))}; -o json shows it whole)" if is_cut else text


def _print_attempts(output: Output, attempts: Sequence[Attempt], *, stacks: bool) -> None:
    """Print the attempts, then the error of the newest; with `stacks` the error of each."""
    runs = list(_runs(attempts))
    output.table(
        ["#", "started", "took", "outcome", "by", "code", "error"],
        [_row(output, run) for run in runs],
        stretch=6,
    )
    for run in runs if stacks else runs[:1]:
        _print_error(output, run[0], whole=stacks)


def _runs(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    """Consecutive attempts that ended the same way, newest first; each run takes one line."""
    for _, run in groupby(reversed(attempts), key=_ending):
        yield list(run)


def _ending(attempt: Attempt) -> tuple[Any, ...]:
    error = attempt["error"] or {}
    return (
        attempt["outcome"],
        *(error.get(name) for name in ("type", "code", "message", "stack")),
    )


def _row(output: Output, run: Sequence[Attempt]) -> tuple[object, ...]:
    newest, oldest = run[0], run[-1]
    error = newest["error"]
    started = output.moment(newest["started_at"])
    first, last = oldest["attempt_no"], newest["attempt_no"]
    return (
        str(last) if first == last else f"{first}-{last}",
        started and started.partition(" ")[2],
        _took(run),
        newest["outcome"].removesuffix("_FAILURE"),
        _worker(run),
        None if error is None else error["code"],
        None if error is None else failure(error["type"], error["message"]),
    )


def _took(run: Sequence[Attempt]) -> str:
    """How long an attempt took; for several, the shortest and the longest."""
    known = [seconds for seconds in map(_seconds, run) if seconds is not None]
    if not known:
        return "?"
    least, most = min(known), max(known)
    return f"{most:.2f}s" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f}-{most:.2f}s"


def _seconds(attempt: Attempt) -> float | None:
    if attempt["finished_at"] is None:
        return None
    finished = parse_time(attempt["finished_at"], "time")
    return (finished - parse_time(attempt["started_at"], "time")).total_seconds()


def _worker(run: Sequence[Attempt]) -> str | None:
    """The worker that ran the attempts, or the number of workers."""
    workers = list(dict.fromkeys(attempt["worker"] for attempt in run))
    if len(workers) > 1:
        return f"{len(workers)} hosts"
    return workers[0] and str(workers[0]).removeprefix("lambda:")


def _print_error(output: Output, attempt: Attempt, *, whole: bool) -> None:
    error = attempt["error"]
    if error is None:
        return
    output.line()
    output.line(f"#{attempt['attempt_no']} {error['type']}: {error['message'] or ''}")
    lines = (error["stack"] or "").rstrip().splitlines()
    for line in lines if whole else lines[-_LAST_FRAMES:]:
        output.line(f"  {line}")
    if not whole and len(lines) > _LAST_FRAMES:
        output.line(f"  ({len(lines) - _LAST_FRAMES} more lines above: --stacks)")
