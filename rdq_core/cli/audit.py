"""`rdq audit`: who changed what, when and why."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.options import PAGE, AnyQueue, Cursor, PageSize, Since, next_page, past_time
from rdq_core.cli.output import Output, ago
from rdq_core.domain.times import parse_time

_MAX_NAME: Final = 16

Record = Mapping[str, Any]

app: Final = typer.Typer(help="The audit log.", no_args_is_help=True)


@command(
    app,
    "list",
    asks=True,
    epilog=examples("rdq audit list billing --since 24h", "rdq audit list --principal ann"),
)
def list_records(
    output: Output,
    *,
    queue: AnyQueue = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only names that contain this.")
    ] = None,
    since: Since = "30d",
    page_size: PageSize = PAGE,
    cursor: Cursor = None,
) -> None:
    """List operations on queues, newest first. An intent without an end was interrupted."""
    client = OperatorClient(output)
    records = client.request(
        "audit.list",
        queue=queue,
        principal=principal,
        since=past_time(since, "since", client.now),
        page_size=page_size,
        cursor=cursor,
    )
    where = f"rdq audit list {queue}" if queue else "rdq audit list"
    more = next_page(where, records["next_cursor"], page_size, principal=principal)
    steps = more or [f"{where} -o json"]
    output.show(records, lambda: _print(output, records["items"], steps, client.now()))


def _print(output: Output, records: Sequence[Record], more: Sequence[str], now: datetime) -> None:
    if not records:
        output.line("no records")
        output.next("rdq status")
        return
    output.table(
        ["ago", "what", "", "queue", "who", "why"],
        [
            (
                ago(parse_time(last["at"], "at"), now),
                last["operation"].removeprefix("queue."),
                last["phase"],
                last["queue"],
                _who(last),
                last["reason"] or _changes(first["detail"]),
            )
            for first, last in _operations(records)
        ],
        stretch=5,
    )
    output.next(*more)


def _operations(records: Iterable[Record]) -> Iterable[tuple[Record, Record]]:
    """The first and last record of each operation on the page, newest operation first."""
    operations: dict[str, tuple[Record, Record]] = {}
    for record in records:
        _, last = operations.get(record["operation_id"], (record, record))
        operations[record["operation_id"]] = (record, last)
    return operations.values()


def _who(record: Record) -> str:
    """The end of the principal's name, with a ? if it was not verified."""
    name = record["principal"].rpartition("/")[2]
    short = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
    return f"{short}{'' if record['verified'] else '?'}"


def _changes(detail: Mapping[str, Any]) -> str | None:
    """The changed settings, shown for an operation that has no reason."""
    pairs = detail.get("changes", {}).items()
    return ", ".join(f"{key} {json.dumps(new)}" for key, (_, new) in pairs) or None
