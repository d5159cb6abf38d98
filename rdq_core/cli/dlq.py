"""`rdq dlq list`, `show`, `groups`: look at dead tasks, understand what they died of."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import PAGE, Cursor, PageSize, next_page, past_text
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.examples import examples
from rdq_core.cli.failures import Misuse
from rdq_core.cli.ids import shortened, whole_id
from rdq_core.cli.screen import Screen, ago, failure
from rdq_core.cli.task import ShowPayload, ShowStacks
from rdq_core.cli.task import show as show_task
from rdq_core.domain.ids import check_id
from rdq_core.domain.times import parse_time
from rdq_core.errors import InputInvalid

app: Final = typer.Typer(help="The dead-letter queue.", no_args_is_help=True)


def _no_id(context: typer.Context, value: str | None) -> str | None:
    """A task's id where the queue belongs is told as that; no queue's name has upper case."""
    if value is None or value == value.lower():
        return value
    try:
        check_id(value)
    except InputInvalid:
        return value
    changes = context.info_name in ("redrive", "purge")
    hint = f"rdq dlq {context.info_name} QUEUE {value}" if changes else f"rdq dlq show {value}"
    raise Misuse(f"{value} is a task's id, and a queue belongs here", hint=hint)


Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", callback=_no_id)]
Type = Annotated[
    str | None, typer.Option("--type", help="A glob on the error's type, such as '*Timeout*'.")
]
HandlerRef = Annotated[str | None, typer.Option("--handler", help="The handler ref.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Dead since then: 3h, or an RFC 3339 time.")
]
Until = Annotated[str | None, typer.Option("--until", help="Dead until then.")]
GroupName = Annotated[
    str | None, typer.Option("--group", help="A fingerprint out of rdq dlq groups.")
]


@command(
    app,
    "list",
    asks=True,
    epilog=examples(
        "rdq dlq list billing",
        "rdq dlq list billing --type '*Timeout*' --since 3h",
        "rdq dlq list billing -o jsonl | head  one object a line, for programs",
    ),
)
def list_entries(
    screen: Screen,
    *,
    queue: Queue,
    error_type: Type = None,
    handler: HandlerRef = None,
    since: Since = None,
    until: Until = None,
    group: GroupName = None,
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List the dead tasks of a queue, the oldest death first."""
    ask = Asking(screen)
    chosen = filters(ask, error_type, handler, since, until, group)
    page = ask("dlq.list", queue=queue, **chosen, page_size=page_size, cursor=cursor)
    more = next_page(f"rdq dlq list {queue}", page["next_cursor"], page_size, **chosen)
    screen.show(page, lambda: _tell_entries(screen, queue, page["items"], more, ask.now()))


def filters(
    ask: Asking,
    error_type: str | None,
    handler: str | None,
    since: str | None,
    until: str | None,
    group: str | None,
) -> dict[str, str | None]:
    """The conditions as a request has them."""
    return {
        "type": error_type,
        "handler": handler,
        "since": past_text(since, "since", ask.now),
        "until": past_text(until, "until", ask.now),
        "group": group,
    }


def _tell_entries(
    screen: Screen,
    queue: str,
    items: Sequence[Mapping[str, Any]],
    more: Sequence[str],
    now: datetime,
) -> None:
    if not items:
        screen.line(f"nothing like that {'so far' if more else f'is dead in {queue}'}")
        screen.next(*more or [f"rdq status {queue}"])
        return
    short = shortened(each["id"] for each in items)
    screen.table(
        ["id", "dead", "tried", "code", "error"],
        [
            (
                short[each["id"]],
                since_then(each["dead_at"], now),
                each["attempts"],
                each["code"],
                told(each),
            )
            for each in items
        ],
        stretch=4,
    )
    screen.next(f"rdq dlq show {items[0]['id']}", *more)


@command(
    app,
    "show",
    asks=True,
    epilog=examples(
        "rdq dlq show 01M8PXSZ8GHTD2249VSD1FERQ2",
        "rdq dlq show 01M8PXSZ8GHTD2249VSD1FERQ2 --stacks",
    ),
)
def show(
    screen: Screen,
    *,
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id.")],
    show_payload: ShowPayload = False,
    stacks: ShowStacks = False,
) -> None:
    """Show a dead task with its whole history, newest first."""
    ask = Asking(screen)
    task = ask("dlq.show", id=check_id(whole_id(ask, task_id)), show_payload=show_payload)
    screen.show(task, lambda: show_task(screen, task, stacks=stacks))
    if screen.is_for_people:
        screen.next(f"rdq dlq redrive {task['queue']} {task['id']} --dry-run")


@command(
    app,
    "groups",
    asks=True,
    epilog=examples(
        "rdq dlq groups          all queues, the largest group first", "rdq dlq groups billing"
    ),
)
def groups(
    screen: Screen,
    *,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]", help="The queue's name; without it, all.", callback=_no_id
        ),
    ] = None,
) -> None:
    """Show what the dead tasks died of, one line a bug."""
    ask = Asking(screen)
    found = ask("dlq.groups", queue=queue)
    screen.show(found, lambda: _tell_groups(screen, found["items"], ask.now()))


def _tell_groups(screen: Screen, found: Sequence[Mapping[str, Any]], now: datetime) -> None:
    if not found:
        screen.line("nothing is dead")
        screen.next("rdq status")
        return
    several = len({each["queue"] for each in found}) > 1
    screen.table(
        ["group", "count", "", "first", "last", "error"],
        [
            (
                each["fingerprint"],
                f"{each['count']:,}",
                "new" if each["new"] else "",
                since_then(each["first_seen_at"], now),
                since_then(each["last_seen_at"], now),
                f"{each['queue'] + ': ' if several else ''}{told(each)}",
            )
            for each in found
        ],
        stretch=5,
    )
    first = found[0]
    screen.next(
        f"rdq dlq show {first['example_id']}",
        f"rdq dlq redrive {first['queue']} --group {first['fingerprint']} --dry-run",
    )


def since_then(moment: str, now: datetime) -> str | None:
    """How long ago a moment out of a document is."""
    return ago(parse_time(moment, "time"), now)


def told(entry: Mapping[str, Any]) -> str:
    """What an entry died of, on one line."""
    return failure(entry["type"] or entry["code"], entry["message"])
