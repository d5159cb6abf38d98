"""Stored items as the invariants read them, without the product's code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Mapping[str, Any]]

TERMINAL = frozenset({"SUCCEEDED", "DEAD", "CANCELLED"})
_DAY = 86400


@dataclass(frozen=True, slots=True)
class Row:
    """A state row. Times are as stored: milliseconds, `expires_at` seconds."""

    item: Item

    def _text(self, name: str) -> str | None:
        value = self.item.get(name)
        return None if value is None else str(value["S"])

    def _number(self, name: str) -> int | None:
        value = self.item.get(name)
        return None if value is None else int(value["N"])

    @property
    def task_id(self) -> str:
        return str(self.item["task_id"]["S"])

    @property
    def status(self) -> str:
        return str(self.item["status"]["S"])

    @property
    def life(self) -> str:
        return str(self.item["lf"]["S"])

    @property
    def queue(self) -> str:
        return str(self.item["queue_shard"]["S"]).rpartition("#")[0]

    @property
    def version(self) -> int:
        return self._number("v") or 0

    @property
    def fence(self) -> int:
        return self._number("fencing_token") or 0

    @property
    def token(self) -> str | None:
        return self._text("t")

    @property
    def due_at(self) -> int | None:
        return self._number("due_at")

    @property
    def expires_at(self) -> int | None:
        return self._number("expires_at")

    @property
    def completed_at(self) -> int | None:
        return self._number("d")

    @property
    def attempt_count(self) -> int:
        return self._number("n") or 0

    @property
    def history_length(self) -> int:
        return self._number("h") or 0

    @property
    def last_attempt(self) -> str | None:
        return self._text("la")

    @property
    def redrive_count(self) -> int:
        return self._number("rd") or 0

    @property
    def op_id(self) -> str | None:
        return self._text("op")

    @property
    def concurrency_key(self) -> str | None:
        return self._text("concurrency_key")

    @property
    def failure(self) -> str | None:
        return self._text("f")

    @property
    def body_ref(self) -> str | None:
        return self._text("b")

    @property
    def body_ends_at(self) -> int | None:
        return self._number("be")

    @property
    def result_ref(self) -> str | None:
        return self._text("rr")

    @property
    def created_at(self) -> int:
        return self._number("c") or 0

    @property
    def references(self) -> tuple[str, ...]:
        return tuple((self._text("rf") or "").split())

    def is_gone(self, seconds: float) -> bool:
        """Whether its retention is over."""
        return self.expires_at is not None and self.expires_at <= seconds


def maybe(item: Item | None) -> Row | None:
    """The row of an item."""
    return None if item is None else Row(item)


def outlives(item: Item, row: Row) -> bool:
    """Whether what a row names stays at least as long as it must."""
    if "expires_at" not in item:
        return True
    ends_at = int(item["expires_at"]["N"])
    if row.status in TERMINAL:
        return row.expires_at is not None and ends_at >= row.expires_at + 7 * _DAY
    return ends_at >= (row.due_at or 0) / 1000 + 5 * _DAY
