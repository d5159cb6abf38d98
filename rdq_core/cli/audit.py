"""`rdq audit`: who did what, when and why."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import PAGE, Cursor, PageSize, next_page, past_text
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.examples import examples
from rdq_core.cli.screen import Screen, ago
from rdq_core.domain.times import parse_time

_LONGEST_NAME: Final = 16

app: Final = typer.Typer(help="The audit log.", no_args_is_help=True)


@command(
    app,
    "list",
    asks=True,
    epilog=examples("rdq audit list billing --since 24h", "rdq audit list --principal ann"),
)
def list_records(
    screen: Screen,
    *,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name; without it, all.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="A part of the principal's name.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Since then: 3h, or an RFC 3339 time.")
    ] = "30d",
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List what was done to queues, the newest first. An intent without an end was interrupted."""
    ask = Asking(screen)
    start = past_text(since, "since", ask.now)
    records = ask(
        "audit.list",
        queue=queue,
        principal=principal,
        since=start,
        page_size=page_size,
        cursor=cursor,
    )
    where = f"rdq audit list {queue}" if queue else "rdq audit list"
    more = next_page(where, records["next_cursor"], page_size, principal=principal)
    screen.show(
        records, lambda: _tell(screen, records["items"], more or [f"{where} -o json"], ask.now())
    )


def _tell(
    screen: Screen, records: Sequence[Mapping[str, Any]], more: Sequence[str], now: datetime
) -> None:
    if not records:
        screen.line("nothing is on record")
        screen.next("rdq status")
        return
    screen.table(
        ["ago", "what", "", "queue", "who", "why"],
        [
            (
                ago(parse_time(last["at"], "at"), now),
                last["operation"].removeprefix("queue."),
                last["phase"],
                last["queue"],
                _who(last),
                last["reason"] or _what(first["detail"]),
            )
            for first, last in _operations(records)
        ],
        stretch=5,
    )
    screen.next(*more)


def _operations(
    items: Iterable[Mapping[str, Any]],
) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The first and the last record of each operation, of what is on the page."""
    found: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    for item in items:  # the newest come first
        _, last = found.get(item["operation_id"], (item, item))
        found[item["operation_id"]] = (item, last)
    return found.values()


def _who(record: Mapping[str, Any]) -> str:
    """The end of the name, which tells people apart, and a mark where nobody vouches for it."""
    name = record["principal"].rpartition("/")[2]
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return f"{short}{'' if record['verified'] else '?'}"


def _what(detail: Mapping[str, Any]) -> str | None:
    """The changes of an operation for which nobody gave a reason."""
    pairs = detail.get("changes", {}).items()
    return ", ".join(f"{key} {json.dumps(new)}" for key, (_, new) in pairs) or None
