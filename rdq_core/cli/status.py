"""`rdq status`: all queues at a glance, where an investigation starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.options import AnyQueue
from rdq_core.cli.output import Output, span
from rdq_core.cli.queue import print_no_queues


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "status", asks=True, epilog=examples("rdq status", "rdq status billing -o json"))(
        status
    )


def status(output: Output, *, queue: AnyQueue = None) -> None:
    """Show all queues at a glance. Start here when something is wrong.

    Tasks waiting, running and dead, how long the oldest has been due, and which queues an
    operator has paused or overridden.
    """
    answer = OperatorClient(output).request("status", queue=queue)
    output.show(answer, lambda: _print(output, answer["items"]))


def _print(output: Output, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        print_no_queues(output)
        return
    output.table(
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
            output.line(f"{each['queue']} is paused: {each['pause_reason']}")
    output.next(*_next_steps(queues))


def _count(queue: Mapping[str, Any], name: str) -> str:
    return f"{queue[name]:,}{'' if queue['exact'] else '+'}"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else "not due" if seconds == 0 else span(seconds)


def _marks(queue: Mapping[str, Any]) -> list[str]:
    marks = {
        "UNSERVED": queue["unserved"],
        "PAUSED": queue["paused"],
        "DELETING": queue["deleting"],
        "override": queue["override"] == "in_force",
        "override SUSPENDED": queue["override"] == "suspended",
    }
    return [word for word, holds in marks.items() if holds]


def _next_steps(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    """The commands for the queue with the most dead tasks and for the first unserved one."""
    unserved = [each for each in queues if each["unserved"]]
    dead = sorted((each for each in queues if each["dead"]), key=lambda each: -each["dead"])
    commands = [f"rdq dlq groups {dead[0]['queue']}"] if dead else []
    commands += [f"rdq task list {unserved[0]['queue']}"] if unserved else []
    return commands or [f"rdq queue get {queues[0]['queue']}"]
