"""`rdq gc`: remove what tasks that are gone have left behind."""

import sys
from typing import Annotated

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.screen import Screen, counted, note
from rdq_core.engine.ports import Kind
from rdq_core.ops.garbage import Collected, collect


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "gc")(gc)


def gc(
    screen: Screen,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count it, and remove nothing.")
    ] = False,
) -> None:
    """Remove what tasks that are gone have left behind.

    Normally that is nothing. It reads both tables whole, so run it now and then only.
    """
    watched = screen.is_for_people and sys.stderr.isatty()
    done = collect(parts().store, dry_run=dry_run, progress=_tell_progress if watched else None)
    screen.show(done.as_dict(), lambda: _tell(screen, done))


def _tell_progress(so_far: Collected) -> None:
    note(
        f"{counted(so_far.examined.total(), 'item')} looked at, {so_far.found.total():,} of them nobody's"
    )


def _tell(screen: Screen, done: Collected) -> None:
    screen.table(
        ["kind", "looked at", "nobody's", "removed"],
        [(kind, done.examined[kind], done.found[kind], done.removed[kind]) for kind in Kind],
    )
    if done.dry_run and done.found:
        screen.next("rdq gc")
