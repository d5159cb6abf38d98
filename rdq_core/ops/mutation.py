"""The number of tasks that a request has changed; one record for all requests that change tasks."""

from dataclasses import dataclass, field, replace
from typing import Final

from rdq_core.errors import CorruptItem, RdqError, StoreFailed, TaskConflict, TaskNotFound

REFUSALS: Final = (TaskConflict, TaskNotFound, StoreFailed, CorruptItem)
"""Errors that keep one task from being changed, but not the others."""
_REMEMBERED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The number of tasks that a request selected and changed; with `dry_run` it changed none.

    `skipped` tasks are in a state that excludes the change, `failed` ones could not be stored or
    read. `refusals` holds the first 20 reasons.
    """

    selected: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    dry_run: bool = False
    job_id: str | None = None
    refusals: tuple[RdqError, ...] = field(default=())

    @property
    def counts(self) -> dict[str, int]:
        """The counts, as audit records have them."""
        return {
            "selected": self.selected,
            "done": self.done,
            "skipped": self.skipped,
            "failed": self.failed,
        }

    def with_outcomes_of(self, part: "Mutation") -> "Mutation":
        """The same with the counts of a part of the selected tasks."""
        return replace(
            self,
            done=self.done + part.done,
            skipped=self.skipped + part.skipped,
            failed=self.failed + part.failed,
            refusals=(*self.refusals, *part.refusals)[:_REMEMBERED],
        )

    def refused(self, refusal: RdqError) -> "Mutation":
        """The same with one more task that was not changed, and the reason."""
        counted = (
            replace(self, failed=self.failed + 1)
            if isinstance(refusal, StoreFailed | CorruptItem)
            else replace(self, skipped=self.skipped + 1)
        )
        return replace(counted, refusals=(*self.refusals, refusal)[:_REMEMBERED])
