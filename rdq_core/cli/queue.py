"""`rdq queue`: look at queues."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.screen import Screen, exact, span
from rdq_core.config.merge import leaves
from rdq_core.domain.times import parse_time

app: Final = typer.Typer(
    help="Queues: their configuration and how full they are.", no_args_is_help=True
)

_NO_SETTINGS: Final = frozenset(
    {"queue", "revision", "paused", "shards_ever", "deleting", "override_suspended"}
)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]


@command(app, "get", asks=True)
def get(screen: Screen, *, queue: Queue) -> None:
    """Show a queue's layers and what is in force."""
    layers = Asking(screen)("queue.get", queue=queue)
    screen.show(layers, lambda: _tell_queue(screen, queue, layers))


def _tell_queue(screen: Screen, queue: str, layers: Mapping[str, Any]) -> None:
    over = layers["override"] or {}
    declared = leaves(layers["declared"])
    override = leaves(over["layer"]) if over.get("in_force") else {}
    rows = [
        (
            key,
            shown(value),
            "override" if key in override else "declared" if key in declared else "",
        )
        for key, value in leaves(layers["effective"]).items()
        if key not in _NO_SETTINGS and value not in ([], {})
    ]
    screen.line(f"{queue}, revision {layers['revision']}{_states(layers)}")
    screen.fields(_set_by_people(screen, layers, over))
    screen.line()
    screen.table(["setting", "in force", "set by"], rows, stretch=1)
    screen.next(f"rdq queue stats {queue}", f"rdq queue ladder {queue}")


def _states(layers: Mapping[str, Any]) -> str:
    states = {"PAUSED": layers["paused"], "DELETING": layers["deleting_at"]}
    return "".join(f", {word}" for word, holds in states.items() if holds)


def _set_by_people(
    screen: Screen, layers: Mapping[str, Any], over: Mapping[str, Any]
) -> list[tuple[str, object]]:
    """What a deploy can't undo: pause and override, with the reasons."""
    told: list[tuple[str, object]] = []
    if layers["paused"]:
        told.append(
            (
                "paused",
                f"since {told_time(screen, layers['paused_at'])}{_because(layers['pause_reason'])}",
            )
        )
    if over:
        told.append(("override", f"{override_state(screen, over)}{_because(over['reason'])}"))
    return told


def override_state(screen: Screen, over: Mapping[str, Any]) -> str:
    """Whether an override is in force, and until when."""
    ends_at = told_time(screen, over["expires_at"])
    if over["suspended"]:
        return "SUSPENDED: it contradicts what is declared"
    if not over["in_force"]:
        return f"over since {ends_at}"
    return f"until {ends_at}" if ends_at else "until it is taken away"


def told_time(screen: Screen, moment: str | None) -> str | None:
    """A time out of a document, as people read it."""
    return None if moment is None else screen.time(parse_time(moment, "time"))


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def shown(value: object) -> str | None:
    """A setting as people read it."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


@command(app, "list", asks=True)
def list_queues(screen: Screen) -> None:
    """List the queues."""
    queues = Asking(screen)("queue.list")
    screen.show(queues, lambda: _tell_queues(screen, queues["items"]))


def _tell_queues(screen: Screen, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        tell_no_queue(screen)
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
                _marks(each),
            )
            for each in queues
        ],
        stretch=0,
    )
    screen.next(f"rdq queue stats {queues[0]['queue']}")


def tell_no_queue(screen: Screen) -> None:
    """Print that there is nothing yet to look at."""
    screen.line("no queue is configured")
    screen.next("rdq queue apply queues.yaml")


def _marks(each: Mapping[str, Any]) -> str:
    over = {None: "", "in_force": "override", "suspended": "override SUSPENDED"}[each["override"]]
    return ", ".join(
        filter(
            None, ("PAUSED" if each["paused"] else "", "DELETING" if each["deleting"] else "", over)
        )
    )


@command(app, "ladder", asks=True)
def ladder(screen: Screen, *, queue: Queue) -> None:
    """Show when a task that always fails is tried, and when it dies."""
    steps = Asking(screen)("queue.ladder", queue=queue)
    screen.show(steps, lambda: _tell_ladder(screen, queue, steps))


def _tell_ladder(screen: Screen, queue: str, steps: Mapping[str, Any]) -> None:
    names = ("earliest", "middle", "latest")
    screen.table(
        ["attempt", *names],
        [
            (each["attempt"], *(exact(each[f"{name}_ms"]) for name in names))
            for each in steps["attempts"]
        ],
    )
    dies = steps["dies"]
    screen.line()
    screen.line(
        f"A task that always fails is dead {exact(dies['earliest_ms'])} to {exact(dies['latest_ms'])} after its"
    )
    screen.line(
        f"submit; when each attempt runs into its timeout, {exact(dies['at_worst_ms'])} after it at the latest."
    )
    screen.next(f"rdq queue get {queue}")


@command(app, "stats", asks=True)
def stats(screen: Screen, *, queue: Queue) -> None:
    """Count the tasks of a queue that wait, run and are dead."""
    counts = Asking(screen)("queue.stats", queue=queue)
    screen.show(counts, lambda: _tell_stats(screen, queue, counts))


def _tell_stats(screen: Screen, queue: str, counts: Mapping[str, Any]) -> None:
    age, more = counts["oldest_pending_age_seconds"], "" if counts["exact"] else " or more"
    screen.line(f"{queue}{', PAUSED' if counts['paused'] else ''}")
    screen.fields(
        [
            ("pending", f"{counts['pending']:,}{more}"),
            ("in flight", f"{counts['in_flight']:,}{more}"),
            ("dead", f"{counts['dead']:,}{more}"),
            ("oldest due for", None if age is None else span(age)),
        ]
    )
    screen.next(f"rdq dlq groups {queue}" if counts["dead"] else f"rdq queue get {queue}")
