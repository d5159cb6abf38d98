"""`rdq submit`: one task, or a file of many."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.failures import CONFLICT, WRONG_USE, UsageError, exit_code, print_error
from rdq_core.cli.options import open_input, parse_headers, parse_moment, read_input
from rdq_core.cli.output import Output, counted
from rdq_core.domain.task import Status
from rdq_core.engine.submit import Draft, Submitter, due_at
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

A line of tasks.jsonl is a task object. Instead of payload_json it may have payload_text, or payload
in base64; its other fields are the options of this command and those of `rdq task get`:

\b
  {"queue": "billing", "handler_ref": "charge", "payload_json": {"n": 17}}
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "submit", epilog=_EXAMPLES)(submit)


def submit(
    output: Output,
    *,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", "-H", help="The handler ref.")] = None,
    payload: Annotated[
        str | None,
        typer.Option(help="The payload as text; - is standard input. For JSON add --content-type."),
    ] = None,
    payload_file: Annotated[str | None, typer.Option(help="A file that is the payload.")] = None,
    payloads: Annotated[
        str | None, typer.Option(help="A file with one payload a line, byte for byte.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="A file with one task object a line.")] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Submit none if one is refused.")
    ] = False,
    task_id: Annotated[str | None, typer.Option("--id", help="The task's id, a ULID.")] = None,
    key: Annotated[
        str | None, typer.Option(help="A business key: the same key submits once.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; repeat it for more headers.")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(help="The payload's media type, such as application/json.")
    ] = None,
    handler_version: Annotated[
        str | None, typer.Option(help="Run the task only by handlers of this version.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(help="When the task is due, RFC 3339 with a zone.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="How long until the task is due: 30s, 10m, 24h.")
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(help="Tasks of one key run one after the other.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="What the task is about, such as order:88213.")
    ] = None,
    requested_by: Annotated[str | None, typer.Option(help="Who asked for the task.")] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the task has ended; exit code 0 if it succeeded."),
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
        options={
            "id": task_id,
            "key": key,
            "headers": parse_headers(header or ()),
            "content_type": content_type or (_TEXT if source == "payload" else None),
            "handler_version": handler_version,
            "run_at": parse_moment(run_at, "run_at"),
            "delay": delay,
            "concurrency_key": concurrency_key,
            "target": target,
            "requested_by": requested_by,
        },
    )
    submitter = found.submitter()
    if source in ("payload", "payload_file"):
        with _naming_a_queue():
            draft = _check_json(_with_payload(template, payload, payload_file))
            return _submit_one(output, submitter, draft, found if wait else None)
    if task_id is not None or key is not None or wait:
        raise UsageError("--id, --key and --wait are for one task, and this is a file of many")
    with open_input(payloads or tasks or "-", source) as stream:
        if source == "payloads":
            with _naming_a_queue():  # reports once what is wrong with every line
                submitter.check(template)
            lines: Iterable[Line] = payload_lines(stream, template)
        else:
            due_at(template.options, found.clock.now())  # reports a wrong time once, not by line
            lines = task_lines(stream, template)
        with _progress() as on_progress:
            report = BulkSubmitter(submitter).submit(lines, atomic=atomic, on_progress=on_progress)
    output.show(submit_view(report), lambda: _show(output, report, template.queue))
    return _exit_code(report, atomic=atomic, as_json=not output.is_for_people)


def _the_source(**sources: str | None) -> str:
    """The name of the one payload option that was given. Raises UsageError for none and for two."""
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        options = ", ".join("--" + name.replace("_", "-") for name in given or sources)
        raise UsageError(
            f"{options} exclude each other"
            if given
            else f"there is no payload: give one of {options}"
        )
    return given[0]


def _name(value: str | None, field: str, option: str, source: str) -> str:
    if value is None and source != "tasks":
        raise UsageError(f"the {field} is missing: give {option}")
    return value or ""


def _with_payload(template: Draft, payload: str | None, payload_file: str | None) -> Draft:
    if payload is None or payload == "-":
        return replace(template, payload=read_input(payload_file or "-", "payload_file"))
    try:
        return replace(template, payload=payload.encode())
    except UnicodeEncodeError:
        raise InputInvalid("payload", "is not UTF-8; use --payload-file for bytes") from None


def _check_json(draft: Draft) -> Draft:
    """The draft. Raises InputInvalid if its content type is JSON and its payload isn't: a shell
    easily removes the quotes.
    """
    if (draft.options.get("content_type") or "").partition(";")[0].strip() == JSON:
        try:
            read_json(draft.payload)
        except ValueError as problem:
            raise InputInvalid(
                "payload", str(problem), hint="quote it, or give another --content-type"
            ) from None
    return draft


def _submit_one(
    output: Output, submitter: Submitter, draft: Draft, waits_on: Parts | None
) -> int | None:
    submission = submitter.submit(draft)
    report = BulkReport(submitted=[Submitted(submission.task.id, submission.created, None)])
    output.show(submit_view(report), lambda: _show(output, report, draft.queue))
    return None if waits_on is None else _wait(output, waits_on, submission.task.id)


def _wait(output: Output, found: Parts, task_id: str) -> int | None:
    """Wait until the task has ended. Interrupting the wait doesn't affect the task."""
    sys.stdout.flush()
    never = threading.Event()
    while True:
        task = found.store.get(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id}: it was removed", task_id=task_id)
        if task.status.is_terminal:
            break
        found.idle.wait(never, _LOOK_EVERY)
    if output.is_for_people:
        output.line(f"{task.status} after {counted(len(task.attempts), 'attempt')}")
    return None if task.status is Status.SUCCEEDED else CONFLICT


@contextmanager
def _naming_a_queue() -> Iterator[None]:
    """Report a queue that isn't configured as wrong use: the caller has named it in an option."""
    try:
        yield
    except QueueNotFound as unknown:
        raise UsageError(unknown.message, code=unknown.code, hint=unknown.hint) from None


@contextmanager
def _progress() -> Iterator[Callable[[int], None] | None]:
    """A running count on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done: progress.update(bar, completed=done)


def _show(output: Output, report: BulkReport, queue: str) -> None:
    if report.submitted or not report.rejected:
        output.line(_summary(report, queue))
    if report.rejected:
        output.line(
            f"refused {counted(len(report.rejected), 'line')}, of which nothing was stored:"
        )
        for each in report.rejected[:_MOST_SHOWN]:
            output.line(
                f"  line {each.line}: {f'{each.field}: ' if each.field else ''}{each.message}"
            )
        if len(report.rejected) > _MOST_SHOWN:
            output.line(
                f"  and {len(report.rejected) - _MOST_SHOWN:,} more; -o json lists them all"
            )
    if report.submitted:
        output.next(f"rdq task get {report.submitted[0].id}")


def _summary(report: BulkReport, queue: str) -> str:
    """The numbers of tasks that are new and of those already stored under their key or id."""
    there = sum(not each.created for each in report.submitted)
    new = len(report.submitted) - there
    submitted = f"submitted {counted(new, 'task')}{f' to {queue}' if queue else ''}"
    if not there:
        return submitted
    found = "already there" if len(report.submitted) == 1 else f"{there:,} already there"
    return f"{submitted}; {found}, unchanged" if new else f"{found}, nothing submitted"


def _lines_of(report: BulkReport) -> Iterator[int | None]:
    yield from (each.line for each in report.submitted)
    yield from (each.line for each in report.rejected)


def _exit_code(report: BulkReport, *, atomic: bool, as_json: bool) -> int | None:
    if (failed := report.stopped_by) is not None:
        last = max(line or 0 for line in _lines_of(report))
        message = f"{failed.message}; lines after line {last} were not submitted"
        print_error(RdqError(message, code=failed.code, hint=failed.hint), as_json=as_json)
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
    print_error(
        RdqError(f"{refused}; the first is line {first.line}: {what}", code=first.code),
        as_json=as_json,
    )
    return WRONG_USE
