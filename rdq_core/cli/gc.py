"""`rdq gc`: removes items left behind by tasks that no longer exist."""

import sys

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.options import DryRun
from rdq_core.cli.output import Output, counted, note
from rdq_core.engine.ports import OrphanKind
from rdq_core.ops.garbage import Collected, collect


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "gc")(gc)


def gc(output: Output, *, dry_run: DryRun = False) -> None:
    """Remove orphans: items whose task no longer exists.

    Normally there are none. It reads both tables completely, so run it rarely.
    """
    shows_progress = output.is_for_people and sys.stderr.isatty()
    progress = _print_progress if shows_progress else None
    result = collect(parts().store, dry_run=dry_run, progress=progress)
    output.show(result.as_dict(), lambda: _print(output, result))


def _print_progress(so_far: Collected) -> None:
    items = counted(so_far.examined.total(), "item")
    note(f"{items} examined, {counted(so_far.found.total(), 'orphan')} found")


def _print(output: Output, result: Collected) -> None:
    output.table(
        ["kind", "examined", "orphans", "removed"],
        [
            (kind, result.examined[kind], result.found[kind], result.removed[kind])
            for kind in OrphanKind
        ],
    )
    if result.dry_run and result.found:
        output.next("rdq gc")
