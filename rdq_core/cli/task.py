"""`rdq task`: one task with its whole history."""

from datetime import datetime
from typing import Annotated, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.mutations import ended, left
from rdq_core.cli.screen import Screen, counted, escaped, failure, size
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.task import Status, Task
from rdq_core.errors import InputInvalid
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.tasks import TaskDesk
from rdq_core.ops.views import mutation_view, task_view

app: Final = typer.Typer(help="Tasks.", no_args_is_help=True)

_LAST_FRAMES: Final = 8
_SHOWN_BYTES: Final = 4096

ShowPayload = Annotated[bool, typer.Option("--show-payload", help="Show the payload, not only its size and digest.")]


@command(app, "get")
def get(
    screen: Screen,
    *,
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="With --key: the queue.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The business key that it was submitted with.")] = None,
    show_payload: ShowPayload = False,
) -> None:
    """Show a task, by id, or by queue and business key."""
    from rdq_core.client.rdq import Rdq

    try:
        task = Rdq(parts=parts()).get(task_id, queue=queue, key=key)
    except InputInvalid as refused:
        refused.hint = refused.hint or "rdq task get ID, or by its business key: rdq task get -q QUEUE --key KEY"
        raise
    screen.show(task_view(task, show_payload=show_payload), lambda: show(screen, task, show_payload=show_payload))
    if screen.is_for_people and task.status is Status.DEAD:
        screen.next(f"rdq dlq redrive {task.queue} {task.id}")


@command(app, "cancel")
def cancel(
    screen: Screen,
    *,
    task_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The tasks' ids.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
) -> int | None:
    """Stop tasks that wait or run, for good. What a running handler does after that doesn't count."""
    found = parts()
    done = TaskDesk(found.store, found.canceller(), ids=found.ids).cancel(task_ids, dry_run=dry_run)
    if done.selected == 1 and done.refusals:
        raise done.refusals[0]
    screen.show(mutation_view(done), lambda: _tell_cancelled(screen, task_ids[0], done))
    return ended(done, as_json=not screen.is_for_people)


def _tell_cancelled(screen: Screen, first: str, done: Mutation) -> None:
    if done.dry_run:
        stoppable = done.selected - done.skipped - done.failed
        screen.line(f"{counted(stoppable, 'task')} would be cancelled; nothing was changed")
        screen.next("the same command without --dry-run")
        return
    screen.line(f"{counted(done.done, 'task')} cancelled{left(done)}")
    screen.next(f"rdq task get {first}")


def show(screen: Screen, task: Task, *, show_payload: bool) -> None:
    """Print a task for people: what it is, why it is where it is, and each attempt."""
    screen.line(f"{task.id}  {task.status}")
    screen.fields(_facts(screen, task))
    if task.attempts:
        screen.line()
        screen.table(
            ["#", "started", "took", "outcome", "code", "error"],
            [_attempt_row(screen, attempt) for attempt in task.attempts],
            stretch=5,
        )
        _show_last_error(screen, task.attempts[-1])
    if show_payload:
        screen.line()
        screen.line(escaped(_payload_text(task.payload)))


def _facts(screen: Screen, task: Task) -> list[tuple[str, object]]:
    why = task.failure
    return [
        ("queue", task.queue),
        ("handler", " ".join(filter(None, (task.handler_ref, task.handler_version)))),
        ("key", task.headers.get("rdq.key")),
        ("payload", f"{size(len(task.payload))}, {task.payload_content_type}"),
        ("submitted", screen.time(task.created_at)),
        ("due", screen.time(task.next_attempt_at)),
        ("lease ends", screen.time(task.lease_expires_at)),
        ("ended", screen.time(task.completed_at)),
        ("attempts", f"{task.attempt_count} of the present budget, {len(task.attempts)} in all"),
        ("redriven", counted(task.redrive_count, "time") if task.redrive_count else None),
        ("failure", None if why is None else why.code),
        ("result", None if task.result is None else f"{size(len(task.result))}, {task.result_content_type}"),
    ]


def _attempt_row(screen: Screen, attempt: Attempt) -> tuple[object, ...]:
    error = attempt.error
    told = None if error is None else failure(error.type, error.message)
    started = screen.time(attempt.started_at)
    return (
        attempt.attempt_no,
        started and started.partition(" ")[2],
        _took(attempt.started_at, attempt.finished_at),
        attempt.outcome.removesuffix("_FAILURE"),
        None if error is None else error.code,
        told,
    )


def _took(started: datetime, finished: datetime | None) -> str:
    return "?" if finished is None else f"{(finished - started).total_seconds():.2f}s"


def _show_last_error(screen: Screen, attempt: Attempt) -> None:
    error = attempt.error
    if error is None:
        return
    screen.line()
    screen.line(f"{escaped(error.type)}: {escaped(error.message or '')}")
    for line in (error.stack or "").rstrip().splitlines()[-_LAST_FRAMES:]:
        screen.line(f"  {escaped(line)}")


def _payload_text(payload: bytes) -> str:
    """The payload as text where it is some, else as hex; cut, because a terminal is no file."""
    shown, cut = payload[:_SHOWN_BYTES], len(payload) > _SHOWN_BYTES
    try:
        text = shown.decode()
    except UnicodeDecodeError as problem:
        is_torn = cut and problem.start > _SHOWN_BYTES - 4
        text = shown[: problem.start].decode() if is_torn else shown.hex(" ")
    return f"{text} ... ({size(len(payload))} in all; -o json gives it whole)" if cut else text
