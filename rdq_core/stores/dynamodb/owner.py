"""Whose is it? What a state row, read consistently, says of records, bodies and objects under its
task's id.

The row must be read after the item in question was seen. A row that can't be read proves nothing:
then all of it may be somebody's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rdq_core.domain.ids import claim_id
from rdq_core.stores.dynamodb.access import Access, key
from rdq_core.stores.dynamodb.claim_check import CHECKED, is_of
from rdq_core.stores.dynamodb.items import StateRow, maybe_row
from rdq_core.stores.dynamodb.schema import BODY_PREFIX, RESULT_PREFIX, STATE


@dataclass(frozen=True, slots=True)
class Owner:
    """A task as it is now. `row` is None when there is none, or when it can't be read."""

    is_gone: bool
    row: StateRow | None

    def may_be_of(self, life: str) -> bool:
        """Whether the task may be in this life."""
        return self.row.life == life if self.row is not None else not self.is_gone

    def may_want(self, kind: str) -> bool:
        """Whether the row names the body or result of this kind, or its present holder may yet."""
        if self.row is None:
            return not self.is_gone
        return kind in {*self._bodies, *self._results}

    def may_want_object(self, s3_key: str) -> bool:
        """The same of the content that a body or result has in S3."""
        if self.row is None:
            return not self.is_gone
        kinds = (*self._bodies, *self._results)
        return any(is_of(s3_key, kind.partition("#")[2]) for kind in kinds)

    @property
    def _bodies(self) -> tuple[str, ...]:
        return (
            ()
            if self.row is None or self.row.body_ref is None
            else (f"{BODY_PREFIX}{self.row.body_ref}",)
        )

    @property
    def _results(self) -> tuple[str, ...]:
        # A result is put under its claim's name before the row names it, and a claim is over when
        # its token has gone.
        if self.row is None:
            return ()
        holder = None if self.row.token is None else claim_id(self.row.token)
        refs = (self.row.result_ref, holder, holder and f"{CHECKED}{holder}")
        return tuple(f"{RESULT_PREFIX}{ref}" for ref in refs if ref is not None)


def owner_of(access: Access, task_id: str) -> Owner:
    """The task that has this id now."""
    item = access.sender.get(access.tables.tasks, key(task_id, STATE))
    return Owner(item is None, maybe_row(item))


def text_of(item: Mapping[str, Any], name: str) -> str | None:
    """A string of an item, None where there is none. Nothing else of the item needs to be readable."""
    value = item.get(name, {}).get("S")
    return value if isinstance(value, str) else None
