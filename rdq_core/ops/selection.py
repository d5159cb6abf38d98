"""Which dead tasks an operator means: conditions on their entries, and the choice of exactly one
way to select.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rdq_core.domain import ids
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.globs import matches
from rdq_core.domain.times import format_time
from rdq_core.errors import InputInvalid

MOST_IDS: Final = 500
"""How many tasks one request may name."""
_KINDS: Final = "exactly one of task ids, filters, a group, or all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Conditions that an entry must meet, all of them; None asks nothing.

    `type` is a glob on the error's type, `handler` a handler ref, `group` a fingerprint. `since`
    and `until` bound the time of death, both included.
    """

    type: str | None = None
    handler: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    group: str | None = None

    def admit(self, entry: DeadEntry) -> bool:
        """Whether the entry meets every condition."""
        return (
            (self.type is None or matches(self.type, entry.type or ""))
            and (self.handler is None or entry.handler_ref == self.handler)
            and (self.since is None or entry.dead_at >= self.since)
            and (self.until is None or entry.dead_at <= self.until)
            and (self.group is None or entry.fingerprint == self.group)
        )

    @property
    def are_given(self) -> bool:
        """Whether there is any condition besides the group."""
        return any(value is not None for value in (self.type, self.handler, self.since, self.until))

    def digest(self) -> str:
        """The same for the same conditions, whoever computes it."""
        moments = [
            None if moment is None else format_time(moment) for moment in (self.since, self.until)
        ]
        text = json.dumps([self.type, self.handler, *moments, self.group])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


NO_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a redrive or purge is about. Raises InputInvalid unless it is exactly one of ids,
    filters, a group, all: an operator who names nothing must not hit everything.
    """

    ids: tuple[str, ...] = ()
    filters: Filters = NO_FILTERS
    everything: bool = False

    def __post_init__(self) -> None:
        given = {
            "task ids": bool(self.ids),
            "filters": self.filters.are_given,
            "a group": self.filters.group is not None,
            "all": self.everything,
        }
        kinds = [kind for kind, is_given in given.items() if is_given]
        if len(kinds) != 1:
            raise InputInvalid(
                "selection", f"give {_KINDS}; {' and '.join(kinds) or 'nothing'} was given"
            )
        object.__setattr__(
            self, "ids", tuple(dict.fromkeys(ids.check_id(task_id) for task_id in self.ids))
        )


def named(task_ids: Sequence[str]) -> tuple[str, ...]:
    """The tasks that one request names, each once, in canonical form. Raises InputInvalid for none
    and too many.
    """
    if not 1 <= len(task_ids) <= MOST_IDS:
        raise InputInvalid("ids", f"are {len(task_ids)}; 1 to {MOST_IDS} can be named at once")
    return Selection(ids=tuple(task_ids)).ids
