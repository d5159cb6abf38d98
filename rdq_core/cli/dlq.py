"""`rdq dlq`: look at dead tasks, understand what they died of, send them back."""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from rdq_core.cli.arguments import content, past
from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.failures import Misuse
from rdq_core.cli.mutations import ended, left
from rdq_core.cli.screen import Screen, ago, counted, failure
from rdq_core.cli.task import ShowPayload
from rdq_core.cli.task import show as show_task
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import check_id
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.ports import Clock
from rdq_core.errors import InputInvalid
from rdq_core.ops.dead_letters import DeadLetters, Entries, Group
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.selection import Filters, Selection
from rdq_core.ops.views import entry_view, group_view, listed, mutation_view, task_view

app: Final = typer.Typer(help="The dead-letter queue.", no_args_is_help=True)


def _no_id(context: typer.Context, value: str | None) -> str | None:
    """A task's id where the queue belongs is told as that; no queue's name has upper case."""
    if value is None or value == value.lower():
        return value
    try:
        check_id(value)
    except InputInvalid:
        return value
    hint = f"rdq dlq redrive QUEUE {value}" if context.info_name == "redrive" else f"rdq dlq show {value}"
    raise Misuse(f"{value} is a task's id, and a queue belongs here", hint=hint)


Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", callback=_no_id)]
Type = Annotated[str | None, typer.Option("--type", help="A glob on the error's type, such as '*Timeout*'.")]
HandlerRef = Annotated[str | None, typer.Option("--handler", help="The handler ref.")]
Since = Annotated[str | None, typer.Option("--since", help="Dead since then: 3h, or an RFC 3339 time.")]
Until = Annotated[str | None, typer.Option("--until", help="Dead until then.")]
GroupName = Annotated[str | None, typer.Option("--group", help="A fingerprint out of rdq dlq groups.")]


@command(app, "list")
def list_entries(
    screen: Screen,
    *,
    queue: Queue,
    error_type: Type = None,
    handler: HandlerRef = None,
    since: Since = None,
    until: Until = None,
    group: GroupName = None,
    page_size: Annotated[int, typer.Option(help="How many at most, 1 to 500.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
) -> None:
    """List the dead tasks of a queue."""
    desk, clock = _desk()
    filters = _filters(clock, error_type, handler, since, until, group)
    page = desk.entries(queue, filters, page_size=page_size, cursor=cursor)
    document = listed(map(entry_view, page.items), page.next_cursor)
    screen.show(document, lambda: _tell_entries(screen, queue, page, clock))


def _tell_entries(screen: Screen, queue: str, page: Entries, clock: Clock) -> None:
    if not page.items:
        screen.line(f"nothing like that is dead in {queue}")
        return
    now = clock.now()
    screen.table(
        ["id", "dead", "tried", "code", "error"],
        [(each.task_id, ago(each.dead_at, now), each.attempts, each.code, _told(each)) for each in page.items],
        stretch=4,
    )
    more = [f"rdq dlq list {queue} --cursor {page.next_cursor}"] if page.next_cursor else []
    screen.next(f"rdq dlq show {page.items[0].task_id}", *more)


@command(app, "show")
def show(
    screen: Screen,
    *,
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id.")],
    show_payload: ShowPayload = False,
) -> None:
    """Show a dead task with its whole failure history."""
    desk, _ = _desk()
    task = desk.show(check_id(task_id))
    screen.show(task_view(task, show_payload=show_payload), lambda: show_task(screen, task, show_payload=show_payload))
    if screen.is_for_people:
        screen.next(f"rdq dlq redrive {task.queue} {task.id} --dry-run")


@command(app, "groups")
def groups(
    screen: Screen,
    *,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name; without it, all.", callback=_no_id)
    ] = None,
) -> None:
    """Show what the dead tasks died of, one line a bug."""
    desk, clock = _desk()
    found = desk.groups(queue)
    screen.show(listed(map(group_view, found)), lambda: _tell_groups(screen, found, clock))


def _tell_groups(screen: Screen, found: Sequence[Group], clock: Clock) -> None:
    if not found:
        screen.line("nothing is dead")
        return
    now = clock.now()
    several = len({each.queue for each in found}) > 1
    screen.table(
        ["group", "count", "last", "code", "error"],
        [
            (
                each.fingerprint,
                each.count,
                ago(each.last_seen_at, now),
                each.example.code,
                f"{each.queue + ': ' if several else ''}{_told(each.example)}",
            )
            for each in found
        ],
        stretch=4,
    )
    first = found[0]
    screen.next(
        f"rdq dlq show {first.example.task_id}",
        f"rdq dlq redrive {first.queue} --group {first.fingerprint} --dry-run",
    )


@command(app, "redrive")
def redrive(
    screen: Screen,
    *,
    queue: Queue,
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="These tasks.")] = None,
    error_type: Type = None,
    handler: HandlerRef = None,
    since: Since = None,
    until: Until = None,
    group: GroupName = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead task of the queue.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even those redriven max_redrives times.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    unpin: Annotated[bool, typer.Option("--unpin", help="Drop the handler version they are pinned to.")] = False,
    set_version: Annotated[str | None, typer.Option(help="Pin them to this handler version.")] = None,
    set_handler: Annotated[str | None, typer.Option(help="Give them to this handler ref.")] = None,
    payload_file: Annotated[str | None, typer.Option(help="Give the one task this payload; - is stdin.")] = None,
) -> int | None:
    """Send dead tasks back: due now, with a full budget.

    Their history is kept. Choose them by ids, by filters, by --group, or --all. All but ids need --yes where nobody can
    be asked.
    """
    desk, clock = _desk()
    filters = _filters(clock, error_type, handler, since, until, group)
    selection = _selection(task_ids or (), filters, everything=everything)
    edit = Edit(
        handler_ref=set_handler,
        handler_version=set_version,
        unpin=unpin,
        payload=None if payload_file is None else content(payload_file, "payload_file"),
    )
    if not (dry_run or yes or selection.ids):
        _confirm(screen, queue, desk.redrive(queue, selection, edit, dry_run=True).selected)
    done = desk.redrive(queue, selection, edit, dry_run=dry_run, force=force)
    if len(selection.ids) == 1 and done.refusals:
        raise done.refusals[0]
    screen.show(mutation_view(done), lambda: _tell_redriven(screen, queue, done))
    return ended(done, as_json=not screen.is_for_people)


def _selection(task_ids: Sequence[str], filters: Filters, *, everything: bool) -> Selection:
    try:
        return Selection(ids=tuple(task_ids), filters=filters, everything=everything)
    except InputInvalid as refused:
        if refused.field == "selection":
            refused.hint = "give ids, or --group, or --all, or filters: --type --handler --since --until"
        raise


def _confirm(screen: Screen, queue: str, selected: int) -> None:
    """Ask before many are sent back. Nothing needs no question; where nobody can be asked it is refused."""
    if not selected:
        return
    told = f"{counted(selected, 'task')} back to {queue}"
    if not (screen.is_for_people and sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse(f"this would send {told}, and nobody can be asked", hint="add --yes, or --dry-run to count only")
    typer.confirm(f"send {told}?", abort=True, err=True)


def _tell_redriven(screen: Screen, queue: str, done: Mutation) -> None:
    if not done.selected:
        screen.line(f"nothing like that is dead in {queue}")
        screen.next(f"rdq dlq list {queue}")
        return
    if done.dry_run:
        screen.line(
            f"{counted(done.selected - done.skipped, 'task')} would be sent back to {queue}; nothing was changed"
        )
        screen.next("the same command without --dry-run")
        return
    screen.line(f"{counted(done.done, 'task')} sent back to {queue}{left(done)}")
    screen.next(f"rdq queue stats {queue}")


def _filters(
    clock: Clock,
    error_type: str | None,
    handler: str | None,
    since: str | None,
    until: str | None,
    group: str | None,
) -> Filters:
    now = clock.now()
    return Filters(
        type=error_type,
        handler=handler,
        since=past(since, "since", now=now),
        until=past(until, "until", now=now),
        group=group,
    )


def _told(entry: DeadEntry) -> str:
    return failure(entry.type, entry.message)


def _desk() -> tuple[DeadLetters, Clock]:
    found = parts()
    desk = DeadLetters(found.store, found.queues, found.redriver(), clock=found.clock, ids=found.ids)
    return desk, found.clock
