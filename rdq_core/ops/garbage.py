"""Removing what tasks that are gone have left behind and nobody has cleaned up.

The invariant: memory doesn't grow with what is looked through. Stopped half-way, it has done half
of it: run it again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rdq_core.engine.ports import Kind, Orphans


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was looked at, found to be nobody's, and deleted, by kind; with `dry_run` nothing is
    deleted.
    """

    dry_run: bool
    examined: Counter[Kind] = field(default_factory=Counter)
    found: Counter[Kind] = field(default_factory=Counter)
    removed: Counter[Kind] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        counts = {"examined": self.examined, "found": self.found, "removed": self.removed}
        by_kind = {
            name: {str(kind): count[kind] for kind in Kind} for name, count in counts.items()
        }
        return {**by_kind, "dry_run": self.dry_run}


def collect(
    remains: Orphans, *, dry_run: bool = False, progress: Callable[[Collected], None] | None = None
) -> Collected:
    """Look through everything once. `progress` is told how far it is after each page. Raises
    StoreFailed.
    """
    so_far = Collected(dry_run=dry_run)
    handle: Any = None
    while True:
        page = remains.collect_orphans(after=handle, dry_run=dry_run)
        for total, part in (
            (so_far.examined, page.examined),
            (so_far.found, page.found),
            (so_far.removed, page.removed),
        ):
            total.update(part)
        handle = page.next
        if handle is None:
            return so_far
        if progress is not None:
            progress(so_far)
