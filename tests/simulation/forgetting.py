"""The invariants of references and of forgotten tasks."""

from typing import TYPE_CHECKING, Final

from rdq_core.domain.references import Reference, ReferenceKind
from tests.simulation.rows import Item, Row, outlives
from tests.simulation.verdict import require
from tests.simulation.witness import StoreCall
from tests.support.fake_dynamodb import Change

if TYPE_CHECKING:
    from tests.support.fake_dynamodb import Database

CONTROL: Final = "rdq-control"
FORGETTING: Final = frozenset({"forget", "submit", "claim", "claim_keyed", "lapsed"})
"""The verbs that may remove a row whose target was forgotten."""
_GRACE: Final = 2000
_TARGETS: Final = 3


def target_of(number: int) -> Reference:
    """One of the few orders that tasks are about."""
    return Reference(ReferenceKind.TARGET, f"order-{number % _TARGETS}")


class Forgotten:
    """What was forgotten, by the tombstones and by the answers to the requests."""

    def __init__(self) -> None:
        self._answered: dict[str, int] = {}

    def heard(self, call: StoreCall) -> None:
        """A forget has been answered with success."""
        digest, moment = call.given[0].digest, round(call.options["now"].timestamp() * 1000)
        self._answered[digest] = max(moment, self._answered.get(digest, 0))

    def check_removal(self, database: "Database", row: Row, call: StoreCall) -> None:
        """A row is removed by another verb than a purge."""
        require("only a purge or a forget removes a row", call.verb in FORGETTING, call)
        require("only what was forgotten is removed", is_forgotten(database, row), call)

    def check_row(self, database: "Database", row: Row) -> None:
        """A row was written: its references lead to it, at least as long as it stays."""
        for place in _places(row):
            item = database.tables[CONTROL].get(place)
            require("a task is found by its target", item is not None, f"{row.task_id} {place}")
            assert item is not None
            require("a reference outlives its row", outlives(item, row), f"{row.task_id} {place}")

    def check_reference(self, change: Change, row: Row | None) -> None:
        """A reference was written or removed. `row` is that of its task, if its life goes on."""
        if change.after is None and row is not None:
            require("a task is found by its target", change.key not in _places(row), change.key)

    def check_end(self, row: Row) -> None:
        """At the end: nothing is left of what was forgotten after it was submitted."""
        for digest in row.references:
            stays = row.created_at > self._answered.get(digest, 0)
            require("what was forgotten is gone", stays, f"{row.task_id} is {row.status}")


def task_of(change: Change) -> str | None:
    """The id of the task to which a reference leads; None for other items."""
    if change.table != CONTROL or not change.key[0].startswith("ref#"):
        return None
    item = change.after or change.before or {}
    return item["task_id"]["S"] if "task_id" in item else None


def _places(row: Row) -> list[tuple[str, str]]:
    return [(f"ref#{digest}", f"{row.task_id}#{row.life}") for digest in row.references]


def is_forgotten(database: "Database", row: Row) -> bool:
    """Whether a tombstone includes the row's task: no worker runs it, and the next that reads it
    removes it.
    """
    stones = (
        database.tables[CONTROL].get((f"ref#{digest}", "tombstone")) for digest in row.references
    )
    return any(stone is not None and row.created_at - _GRACE <= _moment(stone) for stone in stones)


def _moment(stone: Item) -> int:
    return int(stone["forgotten_at"]["N"])
