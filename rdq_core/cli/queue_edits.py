"""`rdq queue set`, `pause`, `resume`, `delete`: what people change about a queue, each time with a
reason.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.failures import Misuse
from rdq_core.cli.queue import Queue, override_state, shown, told_time
from rdq_core.cli.screen import Screen, note

Reason = Annotated[
    str | None, typer.Option("--reason", help="Why, for those who look at it later.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "set", asks=True)(set_)
    command(app, "pause", asks=True)(pause)
    command(app, "resume", asks=True)(resume)
    command(app, "delete", asks=True)(delete)


def can_ask(screen: Screen) -> bool:
    """Whether there is somebody at a terminal to ask."""
    return screen.is_for_people and sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(screen: Screen, question: str) -> None:
    """Ask before something that can't be undone. Where nobody can be asked it is refused."""
    if not can_ask(screen):
        raise Misuse(
            f"this would {question.rstrip('?')}, and nobody can be asked",
            hint="add --yes, or --dry-run to count only",
        )
    typer.confirm(question, abort=True, err=True)


def set_(
    screen: Screen,
    *,
    queue: Queue,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="KEY= takes the key out again."),
    ] = None,
    reason: Reason = None,
    lasts: Annotated[
        str | None,
        typer.Option("--for", help="How long all that is set holds: 2h, or never an end."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take away all that was set.")] = False,
) -> None:
    """Put settings on top of what is declared, for good or for a while. No deploy undoes them.

    A queue has one override, with one reason and one end: what was set before stays, and without
    --for its end as well.
    """
    _check_set(assignments, reason, lasts, clear=clear)
    done = Asking(screen)(
        "queue.set",
        queue=queue,
        set=assignments or None,
        clear=clear or None,
        lasts=lasts,
        reason=reason,
    )
    screen.show(done, lambda: _tell_set(screen, queue, done))


def _check_set(
    assignments: list[str] | None, reason: str | None, lasts: str | None, *, clear: bool
) -> None:
    if clear and (assignments or lasts):
        raise Misuse("--clear takes away all that was set: give it without KEY=VALUE and --for")
    if not clear and not assignments:
        raise Misuse("there is nothing to set: give KEY=VALUE, or --clear")
    if not clear and not reason:
        raise Misuse("the reason is missing: give --reason TEXT")


def _tell_set(screen: Screen, queue: str, done: Mapping[str, Any]) -> None:
    over = done["override"]
    state = (
        "nothing is set on top of what is declared"
        if over is None
        else f"set {override_state(screen, over)}"
    )
    screen.line(f"{queue}: {state}{'' if done['changed'] else ' (as it was)'}")
    if done["changes"]:
        screen.line()
        rows = [
            (each["key"], shown(each["before"]), shown(each["after"])) for each in done["changes"]
        ]
        screen.table(["setting", "before", "now"], rows, stretch=2)
    screen.next(f"rdq queue get {queue}", *([f"rdq queue set {queue} --clear"] if over else []))


def pause(screen: Screen, *, queue: Queue, reason: Reason = None) -> None:
    """Start nothing more of a queue. Submits and cancels go on."""
    done = Asking(screen)("queue.pause", queue=queue, reason=reason)
    screen.show(done, lambda: _tell_paused(screen, queue, done))


def _tell_paused(screen: Screen, queue: str, done: Mapping[str, Any]) -> None:
    screen.line(
        f"{queue} {'is paused' if done['changed'] else 'was paused already'}: nothing is started, submits go on"
    )
    screen.next(f"rdq queue resume {queue}")


def resume(screen: Screen, *, queue: Queue) -> None:
    """Let a paused queue go on."""
    done = Asking(screen)("queue.resume", queue=queue)
    screen.show(done, lambda: _tell_resumed(screen, queue, done))


def _tell_resumed(screen: Screen, queue: str, done: Mapping[str, Any]) -> None:
    screen.line(f"{queue} {'goes on' if done['changed'] else 'was not paused'}")
    screen.next(f"rdq queue stats {queue}")


def delete(
    screen: Screen,
    *,
    queue: Queue,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete a queue, in two steps.

    It takes no more tasks at once, and is gone when it has none left.

    Sweeps take the second step by themselves, six minutes later at the earliest; so does this
    command, given again.
    """
    ask = Asking(screen)
    if not yes and can_ask(screen):
        for name, count in _counts(ask("queue.stats", queue=queue)):
            note(f"{name:<9}  {count}")
        typer.confirm(f"refuse all submits to {queue} from now on?", abort=True, err=True)
    done = ask("queue.delete", queue=queue, reason=reason)
    screen.show(done, lambda: _tell_deletion(screen, queue, done))


def _counts(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"{told[name.replace(' ', '_')]:,}") for name in ("pending", "in flight", "dead")
    ]


def _tell_deletion(screen: Screen, queue: str, done: Mapping[str, Any]) -> None:
    if done["state"] == "deleted":
        screen.line(f"{queue} is deleted")
        screen.next("rdq queue list")
        return
    screen.line(f"{queue} takes no more tasks; it is deleted when it has none left")
    screen.fields(
        [
            *_counts(done),
            ("not before", told_time(screen, done["deletable_at"])),
        ]
    )
    if done["paused"]:
        screen.line("It is paused: until it is resumed, nothing of this is run.")
    look = [f"rdq dlq groups {queue}"] if done["dead"] else []
    screen.next(*look, f"rdq queue delete {queue}")
