"""Removal of orphans: items and bodies whose task no longer exists.

The invariant: memory does not grow with the size of the tables. A collection that was interrupted
can be run again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rdq_core.engine.ports import OrphanKind, Orphans


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The numbers of items examined, found to be orphans, and removed, by kind.

    With `dry_run` none is removed.
    """

    dry_run: bool
    examined: Counter[OrphanKind] = field(default_factory=Counter)
    found: Counter[OrphanKind] = field(default_factory=Counter)
    removed: Counter[OrphanKind] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        counts = {"examined": self.examined, "found": self.found, "removed": self.removed}
        by_kind = {
            name: {str(kind): count[kind] for kind in OrphanKind} for name, count in counts.items()
        }
        return {**by_kind, "dry_run": self.dry_run}


def collect(
    orphans: Orphans, *, dry_run: bool = False, progress: Callable[[Collected], None] | None = None
) -> Collected:
    """Examine every item once.

    `progress` is called after each page with the counts so far. Raises StoreFailed.
    """
    so_far = Collected(dry_run=dry_run)
    handle: Any = None
    while True:
        page = orphans.collect_orphans(after=handle, dry_run=dry_run)
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
