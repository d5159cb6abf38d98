"""`rdq submit`: one task, or a file of many."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.failures import CONFLICT, WRONG_USE, exit_code
from rdq_core.cli.failures import UsageError as Misuse
from rdq_core.cli.failures import print_error as tell
from rdq_core.cli.options import open_input as opened
from rdq_core.cli.options import parse_headers as headers
from rdq_core.cli.options import parse_moment as moment
from rdq_core.cli.options import read_input as content
from rdq_core.cli.output import Output as Screen
from rdq_core.cli.output import counted
from rdq_core.domain.task import DEFAULT_CONTENT_TYPE, Status
from rdq_core.domain.units import parse_duration
from rdq_core.engine.ports import Clock
from rdq_core.engine.submit import Draft, Submitter
from rdq_core.errors import InputInvalid, QueueNotFound, RdqError, TaskNotFound
from rdq_core.handlers.decoding import read_json
from rdq_core.handlers.encoding import JSON
from rdq_core.ops.lines import payload_lines, task_lines
from rdq_core.ops.submitting import BulkReport, BulkSubmitter, Line, Submitted
from rdq_core.ops.views import submit_view
from rdq_core.runtime.wiring import Parts

_MOST_SHOWN: Final = 10
_LOOK_EVERY: Final = 0.5
_TEXT: Final = "text/plain; charset=utf-8"
_EXAMPLES: Final = """\b
Examples:
  rdq submit -q billing -H charge --payload hello --key order-17
  rdq submit -q billing -H charge --payload '{"order": 17}' \\
      --content-type application/json
  rdq submit -q billing -H charge --payloads orders.jsonl
  rdq submit --tasks tasks.jsonl

A line of tasks.jsonl; instead of payload_json it may have payload_text, or payload in base64, and beside them key,
delay, run_at, headers and the task's other fields:

\b
  {"queue": "billing", "handler_ref": "charge", "payload_json": {"n": 17}}
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "submit", epilog=_EXAMPLES)(submit)


def submit(
    screen: Screen,
    *,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", "-H", help="The handler ref.")] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            help="The payload as text; - is standard input. JSON is text too, unless --content-type says it."
        ),
    ] = None,
    payload_file: Annotated[str | None, typer.Option(help="A file that is the payload.")] = None,
    payloads: Annotated[
        str | None, typer.Option(help="A file with a payload a line, its bytes as they stand.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="A file with a task object a line.")] = None,
    atomic: Annotated[bool, typer.Option("--atomic", help="Submit none if one is bad.")] = False,
    task_id: Annotated[str | None, typer.Option("--id", help="The task's id, a ULID.")] = None,
    key: Annotated[
        str | None, typer.Option(help="A business key: the same key submits once.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; may be given again.")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(help="What the payload is, such as application/json.")
    ] = None,
    handler_version: Annotated[
        str | None, typer.Option(help="Pin the task to this version.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(help="When it is due, RFC 3339 with a zone.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="How long until it is due: 30s, 10m, 24h.")
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(help="Tasks of one key run one after the other.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the one task's end; exit code 0 if it succeeds."),
    ] = False,
) -> int | None:
    """Submit a task, or one for each line of a file.

    The file is given as --payloads or --tasks; - is standard input.
    """
    source = _the_source(payload=payload, payload_file=payload_file, payloads=payloads, tasks=tasks)
    found = parts()
    template = Draft(
        queue=_name(queue, "queue", "-q", source),
        handler_ref=_name(handler, "handler", "-H", source),
        payload=b"",
        content_type=content_type or (_TEXT if source == "payload" else DEFAULT_CONTENT_TYPE),
        id=task_id,
        key=key,
        headers=headers(header or ()),
        handler_version=handler_version,
        run_at=_run_at(run_at, delay, found.clock),
        concurrency_key=concurrency_key,
    )
    submitter = found.submitter()
    if source in ("payload", "payload_file"):
        with _naming_a_queue():
            draft = _as_said(_one(template, payload, payload_file))
            return _submit_one(screen, submitter, draft, found if wait else None)
    if task_id is not None or key is not None or wait:
        raise Misuse("--id, --key and --wait are for one task, and this is a file of many")
    with opened(payloads or tasks or "-", source) as stream:
        if source == "payloads":
            with _naming_a_queue():  # what is wrong with every line is told once
                submitter.check(template)
            lines: Iterable[Line] = payload_lines(stream, template)
        else:
            lines = task_lines(stream, template, clock=found.clock)
        with _progress() as on_progress:
            report = BulkSubmitter(submitter).submit(lines, atomic=atomic, on_progress=on_progress)
    screen.show(submit_view(report), lambda: _tell(screen, report, template.queue))
    return _ended(report, atomic=atomic, as_json=not screen.is_for_people)


def _the_source(**sources: str | None) -> str:
    """Which of the options that give payloads was given. Without one, or with two, it is a misuse."""
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        options = ", ".join("--" + name.replace("_", "-") for name in given or sources)
        raise Misuse(
            f"{options} exclude each other"
            if given
            else f"there is no payload: give one of {options}"
        )
    return given[0]


def _name(value: str | None, field: str, option: str, source: str) -> str:
    if value is None and source != "tasks":
        raise Misuse(f"the {field} is missing: give {option}")
    return value or ""


def _run_at(run_at: str | None, delay: str | None, clock: Clock) -> datetime | None:
    if delay is None:
        return moment(run_at, "run_at")
    if run_at is not None:
        raise InputInvalid("delay", "excludes run_at: give one of them")
    try:
        return clock.now() + parse_duration(delay)
    except ValueError as problem:
        raise InputInvalid("delay", str(problem)) from None


def _one(template: Draft, payload: str | None, payload_file: str | None) -> Draft:
    if payload is None or payload == "-":
        return replace(template, payload=content(payload_file or "-", "payload_file"))
    try:
        return replace(template, payload=payload.encode())
    except UnicodeEncodeError:
        raise InputInvalid("payload", "is not UTF-8; use --payload-file for bytes") from None


def _as_said(draft: Draft) -> Draft:
    """The draft, whose payload is JSON if its content type says so: a shell's quotes are easily
    lost.
    """
    if draft.content_type.partition(";")[0].strip() == JSON:
        try:
            read_json(draft.payload)
        except ValueError as problem:
            raise InputInvalid(
                "payload", str(problem), hint="quote it, or say another --content-type"
            ) from None
    return draft


def _submit_one(
    screen: Screen, submitter: Submitter, draft: Draft, waits_on: Parts | None
) -> int | None:
    submission = submitter.submit(draft)
    report = BulkReport(submitted=[Submitted(submission.task.id, submission.created, None)])
    screen.show(submit_view(report), lambda: _tell(screen, report, draft.queue))
    return None if waits_on is None else _wait(screen, waits_on, submission.task.id)


def _wait(screen: Screen, found: Parts, task_id: str) -> int | None:
    """Until the task has ended, however it does. Interrupting the wait leaves the task as it is."""
    sys.stdout.flush()
    never = threading.Event()
    while True:
        task = found.store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}: it was removed", task_id=task_id)
        if task.status.is_terminal:
            break
        found.idle.wait(never, _LOOK_EVERY)
    if screen.is_for_people:
        screen.line(f"{task.status} after {counted(len(task.attempts), 'attempt')}")
    return None if task.status is Status.SUCCEEDED else CONFLICT


@contextmanager
def _naming_a_queue() -> Iterator[None]:
    """A queue that isn't configured is wrong use here: nobody has asked for it, they have given it
    work.
    """
    try:
        yield
    except QueueNotFound as unknown:
        raise Misuse(unknown.message, code=unknown.code, hint=unknown.hint) from None


@contextmanager
def _progress() -> Iterator[Callable[[int], None] | None]:
    """A running count on standard error, where a terminal is."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done: progress.update(bar, completed=done)


def _tell(screen: Screen, report: BulkReport, queue: str) -> None:
    if report.submitted or not report.rejected:
        screen.line(_stored(report, queue))
    if report.rejected:
        screen.line(
            f"refused {counted(len(report.rejected), 'line')}, of which nothing was stored:"
        )
        for each in report.rejected[:_MOST_SHOWN]:
            screen.line(
                f"  line {each.line}: {f'{each.field}: ' if each.field else ''}{each.message}"
            )
        if len(report.rejected) > _MOST_SHOWN:
            screen.line(
                f"  and {len(report.rejected) - _MOST_SHOWN:,} more; -o json lists them all"
            )
    if report.submitted:
        screen.next(f"rdq task get {report.submitted[0].id}")


def _stored(report: BulkReport, queue: str) -> str:
    """What is new, and what a key or an id has found."""
    there = sum(not each.created for each in report.submitted)
    new = len(report.submitted) - there
    told = f"submitted {counted(new, 'task')}{f' to {queue}' if queue else ''}"
    if not there:
        return told
    found = "already there" if len(report.submitted) == 1 else f"{there:,} already there"
    return f"{told}; {found}, unchanged" if new else f"{found}, nothing submitted"


def _lines_of(report: BulkReport) -> Iterator[int | None]:
    yield from (each.line for each in report.submitted)
    yield from (each.line for each in report.rejected)


def _ended(report: BulkReport, *, atomic: bool, as_json: bool) -> int | None:
    if (failed := report.stopped_by) is not None:
        last = max(line or 0 for line in _lines_of(report))
        message = f"{failed.message}; lines after line {last} were not submitted"
        tell(RdqError(message, code=failed.code, hint=failed.hint), as_json=as_json)
        return exit_code(failed)
    if not report.rejected:
        return None
    first = report.rejected[0]
    what = f"{first.field}: {first.message}" if first.field else first.message
    outcome = (
        ", so none was submitted"
        if atomic
        else ", the others were submitted"
        if report.submitted
        else ""
    )
    refused = f"{counted(len(report.rejected), 'line')} refused{outcome}"
    tell(
        RdqError(f"{refused}; the first is line {first.line}: {what}", code=first.code),
        as_json=as_json,
    )
    return WRONG_USE
