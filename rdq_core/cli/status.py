"""`rdq status`: where a night begins."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.examples import examples
from rdq_core.cli.queue import tell_no_queue
from rdq_core.cli.screen import Screen, span


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "status", asks=True, epilog=examples("rdq status", "rdq status billing -o json"))(
        status
    )


def status(
    screen: Screen,
    *,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name; without it, all.")
    ] = None,
) -> None:
    """Show how the queues are: where a night begins.

    What waits, runs and is dead, since when the oldest is due, and what people have paused or
    overridden.
    """
    found = Asking(screen)("status", queue=queue)
    screen.show(found, lambda: _tell(screen, found["items"]))


def _tell(screen: Screen, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        tell_no_queue(screen)
        return
    screen.table(
        ["queue", "waiting", "running", "dead", "oldest due", ""],
        [
            (
                each["queue"],
                *(_count(each, name) for name in ("pending", "in_flight", "dead")),
                _age(each["oldest_pending_age_seconds"]),
                ", ".join(_marks(each)),
            )
            for each in queues
        ],
        stretch=0,
    )
    for each in queues:
        if each["pause_reason"]:
            screen.line(f"{each['queue']} is paused: {each['pause_reason']}")
    screen.next(*_next(queues))


def _count(queue: Mapping[str, Any], name: str) -> str:
    return f"{queue[name]:,}{'' if queue['exact'] else '+'}"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else "not due" if seconds == 0 else span(seconds)


def _marks(queue: Mapping[str, Any]) -> list[str]:
    states = {
        "UNSERVED": queue["unserved"],
        "PAUSED": queue["paused"],
        "DELETING": queue["deleting"],
        "override": queue["override"] == "in_force",
        "override SUSPENDED": queue["override"] == "suspended",
    }
    return [word for word, holds in states.items() if holds]


def _next(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    """The command for what is worst."""
    unserved = [each for each in queues if each["unserved"]]
    dead = sorted((each for each in queues if each["dead"]), key=lambda each: -each["dead"])
    commands = [f"rdq dlq groups {dead[0]['queue']}"] if dead else []
    commands += [f"rdq task list {unserved[0]['queue']}"] if unserved else []
    return commands or [f"rdq queue get {queues[0]['queue']}"]
