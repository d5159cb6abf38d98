"""`rdq queue`: apply configuration, and look at queues."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import content
from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.failures import CONFLICT, tell
from rdq_core.cli.screen import Screen, escaped, span
from rdq_core.config.document import parse_document
from rdq_core.errors import ConfigInvalid
from rdq_core.ops.queues import Applied, QueueDesk
from rdq_core.ops.views import listed

app: Final = typer.Typer(help="Queues: their configuration and how full they are.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]


@command(app, "apply")
def apply(
    screen: Screen,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is standard input.")],
) -> int | None:
    """Declare the queues of a file. Queues that it doesn't name are never touched."""
    declared = parse_document(content(file, "file"))
    if not declared.queues:
        raise ConfigInvalid("queues", "the file names no queue")
    applied = _desk().apply(declared)
    screen.show(listed(each.as_dict() for each in applied), lambda: _tell_applied(screen, applied))
    refused = [each.error for each in applied if each.error is not None]
    for error in refused:
        tell(error, as_json=not screen.is_for_people)
    return CONFLICT if refused else None


def _tell_applied(screen: Screen, applied: Sequence[Applied]) -> None:
    screen.table(
        ["queue", "result", "revision"], [(each.queue, each.result, each.revision) for each in applied], stretch=0
    )
    for each in applied:
        if each.is_override_suspended:
            screen.line(f"the override of {each.queue} contradicts what was declared and is suspended")
    screen.next(f"rdq queue get {applied[0].queue}")


@command(app, "get")
def get(screen: Screen, *, queue: Queue) -> None:
    """Show a queue's layers and what is in force."""
    layers = _desk().get(queue)
    screen.show(layers, lambda: _tell_queue(screen, queue, layers))


def _tell_queue(screen: Screen, queue: str, layers: Mapping[str, Any]) -> None:
    declared = dict(_leaves(layers["declared"]))
    override = dict(_leaves((layers["override"] or {}).get("layer", {})))
    rows = [
        (key, value, "override" if key in override else "declared" if key in declared else "")
        for key, value in _leaves(layers["effective"])
        if key not in ("queue", "revision", "paused", "shards_ever")
    ]
    screen.line(f"{queue}, revision {layers['revision']}{', PAUSED' if layers['paused'] else ''}")
    screen.line()
    screen.table(["setting", "in force", "set by"], rows, stretch=1)
    screen.next(f"rdq queue stats {queue}")


def _leaves(layer: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(value, f"{path}{key}.")
        elif value not in ([], {}):
            found.append((f"{path}{key}", value if isinstance(value, str) else json.dumps(value)))
    return found


@command(app, "list")
def list_queues(screen: Screen) -> None:
    """List the queues."""
    queues = _desk().list()
    screen.show(queues, lambda: _tell_queues(screen, queues["items"]))


def _tell_queues(screen: Screen, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        screen.line("no queue is configured")
        screen.next("rdq queue apply queues.yaml")
        return
    screen.table(
        ["queue", "owner", "attempts", "host", "revision", ""],
        [
            (
                each["queue"],
                each["owner"],
                each["max_attempts"],
                each["host"],
                each["revision"],
                "PAUSED" if each["paused"] else "",
            )
            for each in queues
        ],
        stretch=0,
    )
    screen.next(f"rdq queue stats {queues[0]['queue']}")


@command(app, "stats")
def stats(screen: Screen, *, queue: Queue) -> None:
    """Count the tasks of a queue that wait, run and are dead."""
    counts = _desk().stats(queue)
    screen.show(counts, lambda: _tell_stats(screen, queue, counts))


def _tell_stats(screen: Screen, queue: str, counts: Mapping[str, Any]) -> None:
    age, more = counts["oldest_pending_age_seconds"], "" if counts["exact"] else " or more"
    screen.line(f"{escaped(queue)}{', PAUSED' if counts['paused'] else ''}")
    screen.fields(
        [
            ("pending", f"{counts['pending']:,}{more}"),
            ("in flight", f"{counts['in_flight']:,}{more}"),
            ("dead", f"{counts['dead']:,}{more}"),
            ("oldest due for", None if age is None else span(age)),
        ]
    )
    screen.next(f"rdq dlq groups {queue}" if counts["dead"] else f"rdq queue get {queue}")


def _desk() -> QueueDesk:
    found = parts()
    return QueueDesk(found.queues, found.store, clock=found.clock)
