"""`rdq task`: show, list and cancel tasks, and forget all of a target or requester."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import Document, OperatorClient
from rdq_core.cli.failures import UsageError, print_refusals, refusal, remainder
from rdq_core.cli.ids import resolve_id, resolve_ids, shorten
from rdq_core.cli.options import (
    PAGE,
    Cursor,
    DryRun,
    Everything,
    HandlerRef,
    PageSize,
    QueueName,
    Reason,
    ShowPayload,
    ShowStacks,
    Status,
    TaskId,
    TaskIds,
    Yes,
    can_confirm,
    confirm,
    next_page,
)
from rdq_core.cli.output import Output, ago, counted
from rdq_core.cli.task_detail import payload_text, print_task
from rdq_core.domain.times import parse_time
from rdq_core.errors import TaskConflict

app: Final = typer.Typer(help="Tasks: show, list, cancel and forget them.", no_args_is_help=True)


@command(app, "get", asks=True)
def get(
    output: Output,
    *,
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The id of the task.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="The queue that --key belongs to.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The business key of the task's submit.")
    ] = None,
    show_payload: ShowPayload = False,
    stacks: ShowStacks = False,
) -> None:
    """Show a task, by id, or by queue and business key."""
    client = OperatorClient(output)
    given = None if task_id is None else resolve_id(client, task_id)
    task = client.request("task.get", id=given, queue=queue, key=key, show_payload=show_payload)
    output.show(task, lambda: print_task(output, task, stacks=stacks))
    if output.is_for_people:
        output.next(_next_step(task))


def _next_step(task: Mapping[str, Any]) -> str:
    match task["status"]:
        case "DEAD":
            return f"rdq dlq redrive {task['queue']} {task['id']} --dry-run"
        case "SUCCEEDED":
            return f"rdq task result {task['id']}"
        case "CANCELLED":
            return f"rdq status {task['queue']}"
        case _:
            return f"rdq task list {task['queue']}"


@command(app, "result", asks=True, epilog=examples("rdq task result 01M8PXSZ8GHTD2249VSD1FERQ2"))
def result(output: Output, *, task_id: TaskId) -> None:
    """Show what the task's handler returned. Exit code 4 if it has not succeeded."""
    client = OperatorClient(output)
    task = client.request("task.get", id=resolve_id(client, task_id))
    if task["status"] != "SUCCEEDED":
        message = f"task {task['id']} is {task['status']}: it has no result"
        raise TaskConflict(message, task_id=task["id"], hint=f"rdq task get {task['id']}")
    names = ("id", "status", "completed_at", "result", "result_content_type")
    output.show({name: task[name] for name in names}, lambda: _print_result(output, task))


def _print_result(output: Output, task: Mapping[str, Any]) -> None:
    returned = task["result"]
    output.line("the handler returned nothing" if returned is None else payload_text(returned))
    output.next(f"rdq task get {task['id']}")


@command(app, "list", asks=True, epilog=examples("rdq task list billing --status IN_FLIGHT"))
def list_tasks(
    output: Output,
    *,
    queue: QueueName,
    status: Status = None,
    handler: HandlerRef = None,
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List the pending and in-flight tasks of a queue. For dead ones: rdq dlq list."""
    client = OperatorClient(output)
    page = client.request(
        "task.list", queue=queue, status=status, handler=handler, page_size=page_size, cursor=cursor
    )
    more = next_page(
        f"rdq task list {queue}", page["next_cursor"], page_size, status=status, handler=handler
    )
    output.show(page, lambda: _print_tasks(output, client, queue, page["items"], more))


def _print_tasks(
    output: Output,
    client: OperatorClient,
    queue: str,
    items: Sequence[Mapping[str, Any]],
    more: Sequence[str],
) -> None:
    if not items:
        output.line("no matches so far" if more else f"no matching task waits or runs in {queue}")
        output.next(*more or [f"rdq status {queue}"])
        return
    now, short = client.now(), shorten(each["id"] for each in items)
    output.table(
        ["id", "status", "due", "handler"],
        [
            (
                short[each["id"]],
                each["status"],
                ago(parse_time(each["due_at"], "time"), now),
                each["handler_ref"],
            )
            for each in items
        ],
        stretch=3,
    )
    output.next(f"rdq task get {items[0]['id']}", *more)


@command(
    app,
    "cancel",
    asks=True,
    epilog=examples(
        "rdq task cancel 01M8PXSZ8GHTD2249VSD1FERQ2 --reason 'sent twice'",
        "rdq task cancel -q billing --handler charge --dry-run",
        "rdq task cancel -q billing --all --reason 'wrong tariff'",
    ),
)
def cancel(
    output: Output,
    *,
    task_ids: TaskIds = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Instead of ids: tasks of this queue.")
    ] = None,
    status: Status = None,
    handler: HandlerRef = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    yes: Yes = False,
) -> int | None:
    """Cancel tasks that wait or run. The result of a handler still running is dropped.

    Select them by ids, or by --queue with filters or --all. Except for ids, this asks first;
    without a terminal it needs --yes.
    """
    client = OperatorClient(output)
    filters = {"status": status, "handler": handler, "all": everything or None}
    if queue is None:
        by_ids = {**filters, "ids": resolve_ids(client, task_ids)}
        return _cancel_by_ids(output, client, by_ids, dry_run=dry_run, reason=reason)
    selection = {**filters, "queue": queue, "ids": task_ids or None}
    if not (dry_run or yes):
        preview = _cancel_pages(client, selection, dry_run=True)
        if preview["selected"]:
            confirm(output, f"cancel {counted(preview['selected'], 'task')} of {queue} for good?")
    done = _cancel_pages(client, {**selection, "reason": reason}, dry_run=dry_run)
    output.show(_summary(done), lambda: _print_cancelled(output, f"rdq status {queue}", done))
    return print_refusals(done, as_json=not output.is_for_people)


@command(
    app,
    "forget",
    asks=True,
    epilog=examples(
        "rdq task forget --requested-by ann@example.com --reason 'request 4711'",
        "rdq task forget --target order:17 --reason 'test data' --yes",
    ),
)
def forget(
    output: Output,
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="What the tasks are about, such as order:17.")
    ] = None,
    requested_by: Annotated[
        str | None, typer.Option("--requested-by", help="Or who asked for them.")
    ] = None,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Remove all tasks of a target or requester for good.

    With payload, history and result, in any status and in every queue. It asks first; without a
    terminal it needs --yes. The audit log gets the reason and the SHA-256 of the target or
    requester: keep names out of the reason.
    """
    client = OperatorClient(output)
    request = {"target": target, "requested_by": requested_by}
    if not yes and (target is None) != (requested_by is None):
        whose = "this target" if requested_by is None else "this requester"
        if not can_confirm(output):
            problem = f"this would remove every task of {whose} for good, and there is no terminal"
            raise UsageError(problem, hint="add --yes")
        confirm(output, f"remove every task of {whose} for good?")
    done = client.request("task.forget", **request, reason=reason)
    output.show(_summary(done), lambda: _print_forgotten(output, done))


def _print_forgotten(output: Output, done: Mapping[str, Any]) -> None:
    output.line(f"{counted(done['done'], 'task')} removed")
    output.next("rdq status")


def _cancel_by_ids(
    output: Output,
    client: OperatorClient,
    selection: Mapping[str, Any],
    *,
    dry_run: bool,
    reason: str | None,
) -> int | None:
    done = client.request("task.cancel", **selection, dry_run=dry_run or None, reason=reason)
    if done["selected"] == 1 and done.get("refusals"):
        raise refusal(done["refusals"][0])
    output.show(
        _summary(done),
        lambda: _print_cancelled(output, f"rdq task get {selection['ids'][0]}", done),
    )
    return print_refusals(done, as_json=not output.is_for_people)


def _cancel_pages(
    client: OperatorClient, selection: Mapping[str, Any], *, dry_run: bool
) -> Document:
    """Cancel page by page until there are no more. Returns the sum of the answers."""
    total = page = client.request("task.cancel", **selection, dry_run=dry_run or None)
    while page["next_cursor"] is not None:
        page = client.request(
            "task.cancel", **selection, dry_run=dry_run or None, cursor=page["next_cursor"]
        )
        counts = {
            name: total[name] + page[name] for name in ("selected", "done", "skipped", "failed")
        }
        refusals = [*total.get("refusals", []), *page.get("refusals", [])][:20]
        total = {**total, **counts, "refusals": refusals}
    return total


def _summary(done: Mapping[str, Any]) -> Document:
    """The JSON answer: the same keys for every change of tasks."""
    names = ("selected", "done", "skipped", "failed", "dry_run", "job_id")
    return {name: done[name] for name in names}


def _print_cancelled(output: Output, next_command: str, done: Mapping[str, Any]) -> None:
    if done["dry_run"]:
        cancellable = done["selected"] - done["skipped"] - done["failed"]
        output.line(f"{counted(cancellable, 'task')} would be cancelled; nothing was changed")
        output.next("the same command without --dry-run")
        return
    output.line(f"{counted(done['done'], 'task')} cancelled{remainder(done)}")
    output.next(next_command)
