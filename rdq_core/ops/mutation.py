"""What a request has changed, counted; the same for all requests that change tasks."""

from dataclasses import dataclass, field, replace
from typing import Final

from rdq_core.errors import CorruptItem, RdqError, StoreFailed, TaskConflict, TaskNotFound

REFUSALS: Final = (TaskConflict, TaskNotFound, StoreFailed, CorruptItem)
"""What keeps one task from being changed, and the others not."""
_REMEMBERED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """What a request has changed, in numbers; with `dry_run` nothing.

    `skipped` are those that may not be changed as asked, `failed` those that storage refused.
    `refusals` holds the first reasons.
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
        """The numbers, as the audit log has them."""
        return {
            "selected": self.selected,
            "done": self.done,
            "skipped": self.skipped,
            "failed": self.failed,
        }

    def with_outcomes_of(self, part: "Mutation") -> "Mutation":
        """The same with what became of a part of those selected."""
        return replace(
            self,
            done=self.done + part.done,
            skipped=self.skipped + part.skipped,
            failed=self.failed + part.failed,
            refusals=(*self.refusals, *part.refusals)[:_REMEMBERED],
        )

    def refused(self, refusal: RdqError) -> "Mutation":
        """The same with one that was not changed, and why."""
        counted = (
            replace(self, failed=self.failed + 1)
            if isinstance(refusal, StoreFailed | CorruptItem)
            else replace(self, skipped=self.skipped + 1)
        )
        return replace(counted, refusals=(*self.refusals, refusal)[:_REMEMBERED])
