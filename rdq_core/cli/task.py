"""`rdq task`: show tasks, cancel them, and forget all of a target or requester."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import PAGE, Cursor, PageSize, next_page
from rdq_core.cli.attempts import tell_attempts
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking, Document
from rdq_core.cli.examples import examples
from rdq_core.cli.failures import Misuse
from rdq_core.cli.ids import shortened, whole_id, whole_ids
from rdq_core.cli.mutations import ended, left, refusal
from rdq_core.cli.payloads import payload_text
from rdq_core.cli.queue_edits import Reason, can_ask, confirmed
from rdq_core.cli.screen import Screen, ago, counted, size
from rdq_core.domain.times import parse_time
from rdq_core.errors import TaskConflict

app: Final = typer.Typer(help="Tasks.", no_args_is_help=True)

ShowPayload = Annotated[
    bool, typer.Option("--show-payload", help="Show the payload, not only its size and digest.")
]
ShowStacks = Annotated[
    bool, typer.Option("--stacks", help="Show each attempt's stack, not only the newest one's end.")
]
StatusName = Annotated[str | None, typer.Option("--status", help="PENDING or IN_FLIGHT.")]
HandlerRef = Annotated[str | None, typer.Option("--handler", help="The handler ref.")]


@command(app, "get", asks=True)
def get(
    screen: Screen,
    *,
    task_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The task's id.")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="With --key: the queue.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The business key that it was submitted with.")
    ] = None,
    show_payload: ShowPayload = False,
    stacks: ShowStacks = False,
) -> None:
    """Show a task, by id, or by queue and business key."""
    ask = Asking(screen)
    given = None if task_id is None else whole_id(ask, task_id)
    task = ask("task.get", id=given, queue=queue, key=key, show_payload=show_payload)
    screen.show(task, lambda: show(screen, task, stacks=stacks))
    if screen.is_for_people:
        screen.next(_next_for(task))


def _next_for(task: Mapping[str, Any]) -> str:
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
def result(
    screen: Screen, *, task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id.")]
) -> None:
    """Show what the handler of a task has returned. Exit code 4 when the task has not succeeded."""
    ask = Asking(screen)
    task = ask("task.get", id=whole_id(ask, task_id))
    if task["status"] != "SUCCEEDED":
        told = f"task {task['id']} is {task['status']}: it has no result"
        raise TaskConflict(told, task_id=task["id"], hint=f"rdq task get {task['id']}")
    answer = {
        name: task[name]
        for name in ("id", "status", "completed_at", "result", "result_content_type")
    }
    screen.show(answer, lambda: _tell_result(screen, task))


def _tell_result(screen: Screen, task: Mapping[str, Any]) -> None:
    screen.line(
        "its handler returned nothing" if task["result"] is None else payload_text(task["result"])
    )
    screen.next(f"rdq task get {task['id']}")


@command(app, "list", asks=True, epilog=examples("rdq task list billing --status IN_FLIGHT"))
def list_tasks(
    screen: Screen,
    *,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    status: StatusName = None,
    handler: HandlerRef = None,
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List what waits and runs in a queue. What has ended is in no list but the DLQ's."""
    ask = Asking(screen)
    page = ask(
        "task.list", queue=queue, status=status, handler=handler, page_size=page_size, cursor=cursor
    )
    more = next_page(
        f"rdq task list {queue}", page["next_cursor"], page_size, status=status, handler=handler
    )
    screen.show(page, lambda: _tell_tasks(screen, ask, queue, page["items"], more))


def _tell_tasks(
    screen: Screen, ask: Asking, queue: str, items: Sequence[Mapping[str, Any]], more: Sequence[str]
) -> None:
    if not items:
        screen.line(
            "nothing like that so far" if more else f"nothing like that waits or runs in {queue}"
        )
        screen.next(*more or [f"rdq status {queue}"])
        return
    now, short = ask.now(), shortened(each["id"] for each in items)
    screen.table(
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
    screen.next(f"rdq task get {items[0]['id']}", *more)


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
    screen: Screen,
    *,
    task_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The tasks' ids.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Or those of this queue:")
    ] = None,
    status: StatusName = None,
    handler: HandlerRef = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Whatever waits or runs in the queue.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count them, and change nothing.")
    ] = False,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> int | None:
    """Stop tasks that wait or run, for good. What a running handler does after that doesn't count.

    Choose them by ids, or by a queue and filters, or --all. All but ids need --yes where nobody can
    be asked.
    """
    ask = Asking(screen)
    filters = {"status": status, "handler": handler, "all": everything or None}
    if queue is None:
        return _by_ids(
            screen,
            ask,
            {**filters, "ids": whole_ids(ask, task_ids)},
            dry_run=dry_run,
            reason=reason,
        )
    chosen = {**filters, "queue": queue, "ids": task_ids or None}
    if not (dry_run or yes):
        would = _summed(ask, chosen, dry_run=True)
        if would["selected"]:
            confirmed(screen, f"cancel {counted(would['selected'], 'task')} of {queue} for good?")
    done = _summed(ask, {**chosen, "reason": reason}, dry_run=dry_run)
    screen.show(_shape(done), lambda: _tell_cancelled(screen, f"rdq status {queue}", done))
    return ended(done, as_json=not screen.is_for_people)


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
    screen: Screen,
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="What the tasks are about, such as order:17.")
    ] = None,
    requested_by: Annotated[
        str | None, typer.Option("--requested-by", help="Or who asked for them.")
    ] = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Remove every task of a target or requester, with payload, history and result.

    In any status and in every queue. It asks first; without a terminal it needs --yes. The audit
    log gets the reason and the SHA-256 of the target or requester: keep names out of the reason.
    """
    ask = Asking(screen)
    request = {"target": target, "requested_by": requested_by}
    if not yes and (target is None) != (requested_by is None):
        whose = "this target" if requested_by is None else "this requester"
        if not can_ask(screen):
            problem = f"this would remove every task of {whose} for good, and there is no terminal"
            raise Misuse(problem, hint="add --yes")
        confirmed(screen, f"remove every task of {whose} for good?")
    done = ask("task.forget", **request, reason=reason)
    screen.show(_shape(done), lambda: _tell_forgotten(screen, done))


def _tell_forgotten(screen: Screen, done: Mapping[str, Any]) -> None:
    screen.line(f"{counted(done['done'], 'task')} removed")
    screen.next("rdq status")


def _by_ids(
    screen: Screen, ask: Asking, chosen: Mapping[str, Any], *, dry_run: bool, reason: str | None
) -> int | None:
    done = ask("task.cancel", **chosen, dry_run=dry_run or None, reason=reason)
    if done["selected"] == 1 and done.get("refusals"):
        raise refusal(done["refusals"][0])
    screen.show(
        _shape(done), lambda: _tell_cancelled(screen, f"rdq task get {chosen['ids'][0]}", done)
    )
    return ended(done, as_json=not screen.is_for_people)


def _summed(ask: Asking, chosen: Mapping[str, Any], *, dry_run: bool) -> Document:
    """All the pages of a cancel by filter, summed up."""
    total = page = ask("task.cancel", **chosen, dry_run=dry_run or None)
    while page["next_cursor"] is not None:
        page = ask("task.cancel", **chosen, dry_run=dry_run or None, cursor=page["next_cursor"])
        counts = {
            name: total[name] + page[name] for name in ("selected", "done", "skipped", "failed")
        }
        total = {
            **total,
            **counts,
            "refusals": [*total.get("refusals", []), *page.get("refusals", [])][:20],
        }
    return total


def _shape(done: Mapping[str, Any]) -> Document:
    return {
        name: done[name] for name in ("selected", "done", "skipped", "failed", "dry_run", "job_id")
    }


def _tell_cancelled(screen: Screen, next_command: str, done: Mapping[str, Any]) -> None:
    if done["dry_run"]:
        stoppable = done["selected"] - done["skipped"] - done["failed"]
        screen.line(f"{counted(stoppable, 'task')} would be cancelled; nothing was changed")
        screen.next("the same command without --dry-run")
        return
    screen.line(f"{counted(done['done'], 'task')} cancelled{left(done)}")
    screen.next(next_command)


def show(screen: Screen, task: Mapping[str, Any], *, stacks: bool) -> None:
    """Print a task for people: what it is, why it is where it is, and each attempt, the newest
    first.
    """
    screen.line(f"{task['id']}  {task['status']}")
    screen.fields(_facts(screen, task))
    if task["attempts"]:
        screen.line()
        tell_attempts(screen, task["attempts"], stacks=stacks)
    if "payload" in task:
        screen.line()
        screen.line(payload_text(task["payload"]))


def _facts(screen: Screen, task: Mapping[str, Any]) -> list[tuple[str, object]]:
    why, redriven = task["failure"], task["redrive_count"]
    result = task["result"]
    return [
        ("queue", task["queue"]),
        ("handler", " ".join(filter(None, (task["handler_ref"], task["handler_version"])))),
        ("key", task["headers"].get("rdq.key")),
        ("payload", f"{size(task['payload_size'])}, {task['payload_content_type']}"),
        ("submitted", screen.moment(task["created_at"])),
        ("due", screen.moment(task["next_attempt_at"])),
        ("lease ends", screen.moment(task["lease_expires_at"])),
        ("ended", screen.moment(task["completed_at"])),
        (
            "attempts",
            f"{task['attempt_count']} of the present budget, {len(task['attempts'])} in all",
        ),
        ("redriven", counted(redriven, "time") if redriven else None),
        ("failure", None if why is None else why["code"]),
        (
            "result",
            None
            if result is None
            else f"{size(len(result) * 3 // 4)}, {task['result_content_type']}",
        ),
    ]
