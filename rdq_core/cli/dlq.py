"""`rdq dlq list`, `show`, `groups`: see which tasks died and why.

The commands that change dead tasks, `redrive` and `purge`, are in dlq_redrive.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.ids import resolve_id, shorten
from rdq_core.cli.options import (
    PAGE,
    AnyDeadQueue,
    Cursor,
    DeadFilters,
    DeadQueue,
    PageSize,
    ShowPayload,
    ShowStacks,
    TaskId,
    next_page,
)
from rdq_core.cli.output import Output, ago, failure
from rdq_core.cli.task_detail import print_task
from rdq_core.domain.ids import check_id
from rdq_core.domain.times import parse_time

app: Final = typer.Typer(help="The dead-letter queue.", no_args_is_help=True)


@command(
    app,
    "list",
    asks=True,
    epilog=examples(
        "rdq dlq list billing",
        "rdq dlq list billing --type '*Timeout*' --since 3h",
        "rdq dlq list billing -o jsonl | head  one object per line, for programs",
    ),
)
def list_entries(
    output: Output,
    *,
    queue: DeadQueue,
    filters: DeadFilters,
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List the dead tasks of a queue, oldest death first."""
    client = OperatorClient(output)
    fields = filters.as_request(client.now)
    page = client.request("dlq.list", queue=queue, **fields, page_size=page_size, cursor=cursor)
    more = next_page(f"rdq dlq list {queue}", page["next_cursor"], page_size, **fields)
    output.show(page, lambda: _print_entries(output, queue, page["items"], more, client.now()))


def _print_entries(
    output: Output,
    queue: str,
    items: Sequence[Mapping[str, Any]],
    more: Sequence[str],
    now: datetime,
) -> None:
    if not items:
        output.line("no matches so far" if more else f"no matching dead tasks in {queue}")
        output.next(*more or [f"rdq status {queue}"])
        return
    short = shorten(each["id"] for each in items)
    output.table(
        ["id", "dead for", "attempts", "code", "error"],
        [
            (
                short[each["id"]],
                time_since(each["dead_at"], now),
                each["attempts"],
                each["code"],
                _error(each),
            )
            for each in items
        ],
        stretch=4,
    )
    output.next(f"rdq dlq show {items[0]['id']}", *more)


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
    output: Output,
    *,
    task_id: TaskId,
    show_payload: ShowPayload = False,
    stacks: ShowStacks = False,
) -> None:
    """Show a dead task and its attempts, newest first."""
    client = OperatorClient(output)
    task_id = check_id(resolve_id(client, task_id))
    task = client.request("dlq.show", id=task_id, show_payload=show_payload)
    output.show(task, lambda: print_task(output, task, stacks=stacks))
    if output.is_for_people:
        output.next(f"rdq dlq redrive {task['queue']} {task['id']} --dry-run")


@command(
    app,
    "groups",
    asks=True,
    epilog=examples(
        "rdq dlq groups          all queues, the largest group first", "rdq dlq groups billing"
    ),
)
def groups(output: Output, *, queue: AnyDeadQueue = None) -> None:
    """Group the dead tasks by error, one line per bug."""
    client = OperatorClient(output)
    answer = client.request("dlq.groups", queue=queue)
    output.show(answer, lambda: _print_groups(output, answer["items"], client.now()))


def _print_groups(output: Output, items: Sequence[Mapping[str, Any]], now: datetime) -> None:
    if not items:
        output.line("there are no dead tasks")
        output.next("rdq status")
        return
    has_several_queues = len({each["queue"] for each in items}) > 1
    output.table(
        ["group", "count", "", "first", "last", "error"],
        [
            (
                each["fingerprint"],
                f"{each['count']:,}",
                "new" if each["new"] else "",
                time_since(each["first_seen_at"], now),
                time_since(each["last_seen_at"], now),
                f"{each['queue'] + ': ' if has_several_queues else ''}{_error(each)}",
            )
            for each in items
        ],
        stretch=5,
    )
    first = items[0]
    output.next(
        f"rdq dlq show {first['example_id']}",
        f"rdq dlq redrive {first['queue']} --group {first['fingerprint']} --dry-run",
    )


def time_since(moment: str, now: datetime) -> str | None:
    """How long ago a time of a document is, as in 12m."""
    return ago(parse_time(moment, "time"), now)


def _error(entry: Mapping[str, Any]) -> str:
    """The error of an entry or group, on one line."""
    return failure(entry["type"] or entry["code"], entry["message"])
