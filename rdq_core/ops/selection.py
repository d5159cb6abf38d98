"""Selections of dead tasks, by id, filter or group.

The invariant: a selection uses exactly one of these, so that an empty request never selects
everything. Requests inherit these fields and a job stores them: a new condition is a
field of `DeadLetterFilter` and a line of `admits`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.globs import matches
from rdq_core.domain.ids import check_id
from rdq_core.domain.times import format_time, parse_time
from rdq_core.errors import InputInvalid

MOST_IDS: Final = 500
"""The number of tasks that one request may name."""
_WAYS: Final = "exactly one of task ids, filters, a group, or all"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Conditions on dead tasks, all of which must hold; None is no condition.

    `type` is a glob on the error's type, `handler` a handler ref, `group` a fingerprint. `since`
    and `until` bound the time of death, both included.
    """

    type: str | None = None
    handler: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    group: str | None = None

    def admits(self, entry: DeadEntry) -> bool:
        """Whether the entry meets every condition."""
        return (
            (self.type is None or matches(self.type, entry.type or ""))
            and (self.handler is None or entry.handler_ref == self.handler)
            and (self.since is None or entry.dead_at >= self.since)
            and (self.until is None or entry.dead_at <= self.until)
            and (self.group is None or entry.fingerprint == self.group)
        )

    def conditions(self) -> dict[str, Any]:
        """The conditions as JSON data, in the order of the fields; unused ones are None.

        A request that inherits from this has further fields, which are not part of it.
        """
        given = {field.name: getattr(self, field.name) for field in fields(DeadLetterFilter)}
        return {
            name: format_time(value) if isinstance(value, datetime) else value
            for name, value in given.items()
        }

    def digest(self) -> str:
        """The same text for the same conditions, on every host."""
        text = json.dumps([*self.conditions().values()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


NO_FILTER: Final = DeadLetterFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(DeadLetterFilter):
    """The dead tasks that a redrive or purge applies to.

    Raises InputInvalid unless it is exactly one of ids, filters, a group, all.
    """

    ids: Sequence[str] | None = None
    all: bool = False

    def __post_init__(self) -> None:
        filters = [value for name, value in self.conditions().items() if name != "group"]
        given = {
            "task ids": bool(self.ids),
            "filters": any(value is not None for value in filters),
            "a group": self.group is not None,
            "all": self.all,
        }
        ways = [way for way, is_given in given.items() if is_given]
        if len(ways) != 1:
            raise InputInvalid(
                "selection", f"give {_WAYS}; {' and '.join(ways) or 'nothing'} was given"
            )
        object.__setattr__(self, "ids", _canonical(self.ids or ()))

    def to_plain(self) -> dict[str, Any]:
        """The selection as JSON data, as jobs and audit records store it."""
        given = {name: value for name, value in self.conditions().items() if value is not None}
        if self.all:
            given["all"] = True
        return given | {"ids": [*self.ids]} if self.ids else given

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Selection":
        """The selection that `to_plain` made the data of."""
        known = {field.name for field in fields(Selection)}
        given = {name: value for name, value in plain.items() if name in known}
        return Selection(**with_times(Selection, given))


def with_times(of: type[Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """JSON data with a datetime for each RFC 3339 text that the dataclass `of` has as a time.

    Raises InputInvalid for a text that is not one.
    """
    times = {field.name for field in fields(of) if field.type == datetime | None}
    return {
        name: parse_time(value, name) if name in times and value is not None else value
        for name, value in plain.items()
    }


def named(task_ids: Sequence[str]) -> tuple[str, ...]:
    """The ids that a request names, each once, in canonical form.

    Raises InputInvalid for an id that is malformed, for none, and for too many.
    """
    if not 1 <= len(task_ids) <= MOST_IDS:
        raise InputInvalid("ids", f"are {len(task_ids)}; 1 to {MOST_IDS} can be named at once")
    return _canonical(task_ids)


def _canonical(task_ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_id(task_id) for task_id in task_ids))
