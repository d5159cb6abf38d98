"""Arguments and options that several commands share, and how their values are read."""

import base64
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from rdq_core.cli.failures import UsageError
from rdq_core.cli.output import Output
from rdq_core.domain.ids import check_id
from rdq_core.domain.times import format_time, parse_time
from rdq_core.domain.units import parse_duration
from rdq_core.errors import InputInvalid

PAGE: Final = 50
"""Items on a page unless --page-size is given."""


def _refuse_task_id(context: typer.Context, value: str | None) -> str | None:
    """Reject a task id given as the queue. Task ids have upper case; queue names never do."""
    if value is None or value == value.lower():
        return value
    try:
        check_id(value)
    except InputInvalid:
        return value
    changes = context.info_name in ("redrive", "purge")
    hint = f"rdq dlq {context.info_name} QUEUE {value}" if changes else f"rdq dlq show {value}"
    raise UsageError(f"{value} is a task id; a queue name was expected", hint=hint)


QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")]
AnyQueue = Annotated[
    str | None, typer.Argument(metavar="[QUEUE]", help="The name of the queue. [default: all]")
]
DeadQueue = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The name of the queue.", callback=_refuse_task_id),
]
AnyDeadQueue = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUEUE]", help="The name of the queue. [default: all]", callback=_refuse_task_id
    ),
]
TaskId = Annotated[str, typer.Argument(metavar="ID", help="The id of the task.")]
TaskIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="The ids of the tasks.")
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]

Status = Annotated[str | None, typer.Option("--status", help="PENDING or IN_FLIGHT.")]
HandlerRef = Annotated[
    str | None, typer.Option("--handler", help="Only tasks of this handler ref.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only after this time: 3h (ago) or RFC 3339.")
]
PageSize = Annotated[int, typer.Option(help="Items per page, 1 to 500.")]
Cursor = Annotated[str | None, typer.Option(help="Continue after a page, with its options.")]
ShowPayload = Annotated[
    bool, typer.Option("--show-payload", help="Show the payload, not just its size.")
]
ShowStacks = Annotated[
    bool, typer.Option("--stacks", help="Show the whole stack of every attempt.")
]

Everything = Annotated[bool, typer.Option("--all", help="Select all, instead of ids or filters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect; change nothing.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Recorded in the audit log.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
Detach = Annotated[bool, typer.Option("--detach", help="Return at once; the sweeps do the work.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilters:
    """Options that select dead tasks."""

    error_type: Annotated[
        str | None, typer.Option("--type", help="Only this error type; a glob: '*Timeout*'.")
    ] = None
    handler: HandlerRef = None
    since: Since = None
    until: Annotated[
        str | None, typer.Option("--until", help="Only before this time, as for --since.")
    ] = None
    group: Annotated[
        str | None, typer.Option("--group", help="Only this group (see rdq dlq groups).")
    ] = None

    def as_request(self, now: Callable[[], datetime]) -> dict[str, str | None]:
        """The filters as the fields of an operator request."""
        return {
            "type": self.error_type,
            "handler": self.handler,
            "since": past_time(self.since, "since", now),
            "until": past_time(self.until, "until", now),
            "group": self.group,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions:
    """Options of commands that change many dead tasks."""

    everything: Everything = False
    dry_run: DryRun = False
    rate: Annotated[
        str | None, typer.Option("--rate", help="Maximum rate: 50/s. [default: the queue's]")
    ] = None
    reason: Reason = None
    yes: Yes = False
    detach: Detach = False


def next_page(command: str, cursor: str | None, page_size: int, **filters: str | None) -> list[str]:
    """The command that shows the next page, if there is one.

    It repeats the filters: a cursor is valid only with those it was issued for.
    """
    if cursor is None:
        return []
    given = {
        **filters,
        "page-size": None if page_size == PAGE else str(page_size),
        "cursor": cursor,
    }
    options = [
        f"--{name} {shlex.quote(value)}" for name, value in given.items() if value is not None
    ]
    return [" ".join([command, *options])]


def parse_moment(text: str | None, field: str) -> datetime | None:
    """A time in RFC 3339 with a zone. Raises InputInvalid."""
    return None if text is None else parse_time(text, field)


def past_time(text: str | None, field: str, now: Callable[[], datetime]) -> str | None:
    """A time given as a duration ago (`3h`) or as RFC 3339 with a zone, in RFC 3339.

    Raises InputInvalid. `now` may cost a request, so it is called only for a duration.
    """
    if text is None:
        return None
    if "-" in text:
        return format_time(parse_time(text, field))
    try:
        return format_time(now() - parse_duration(text))
    except ValueError as problem:
        raise InputInvalid(field, f"{problem}, or an RFC 3339 time with a zone") from None


def parse_headers(pairs: Sequence[str]) -> dict[str, str]:
    """Headers given as NAME=VALUE. Raises InputInvalid for another form and for repeated names."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputInvalid("header", "must be given as NAME=VALUE")
        if name in headers:
            raise InputInvalid(f"headers.{name}", "is given twice")
        headers[name] = value
    return headers


def open_input(name: str, field: str) -> AbstractContextManager[BinaryIO]:
    """Open a file to read bytes from; `-` is standard input. Raises InputInvalid."""
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as problem:
        raise InputInvalid(field, f"cannot read {name}: {problem.strerror}") from None


def read_input(name: str, field: str) -> bytes:
    """The content of a file; `-` is standard input. Raises InputInvalid."""
    with open_input(name, field) as stream:
        try:
            return stream.read()
        except OSError as problem:
            raise InputInvalid(field, f"cannot read {name}: {problem.strerror}") from None


def read_base64(name: str | None, field: str) -> str | None:
    """The content of a file in base64, as requests carry payloads; None without a file."""
    return None if name is None else base64.b64encode(read_input(name, field)).decode()


def can_confirm(output: Output) -> bool:
    """Whether a person is at a terminal to answer a question."""
    return output.is_for_people and sys.stdin.isatty() and sys.stderr.isatty()


def confirm(output: Output, question: str) -> None:
    """Ask before something that cannot be undone.

    Raises typer.Abort for no, UsageError where there is no terminal to ask on.
    """
    if not can_confirm(output):
        raise UsageError(
            f"this would {question.rstrip('?')}, and there is no terminal to confirm it on",
            hint="add --yes, or --dry-run to see the effect only",
        )
    typer.confirm(question, abort=True, err=True)
