"""The audit log's invariants: records are only added, and every operation has its intent."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from rdq_core.engine.ports import Phase
from tests.simulation.verdict import require
from tests.simulation.witness import StoreCall
from tests.support.fake_dynamodb import Change

if TYPE_CHECKING:
    from tests.support.fake_dynamodb import Database

AUDIT: Final = "rdq-audit"
AUDITED: Final = frozenset({"redrive", "purge"})


def check_change(change: Change) -> None:
    """A record was written."""
    require("an audit record is never changed", change.before in (None, change.after), change.key)
    require("an audit record stays", change.after is not None, change.key)


def check_intent(database: "Database", call: StoreCall) -> None:
    """An operator's operation has changed a task: its intent must be on record."""
    op_id = call.options["op_id"]
    known = any(op_id in item["detail"]["S"] for item in _of_phase(database, Phase.INTENT))
    require("what has no intent on record was not begun", known, call)


def check_end(database: "Database", completed: set[str]) -> None:
    """At the end of a run: each end has its intent, and each operation that succeeded has both."""
    begun = {item["operation_id"]["S"] for item in _of_phase(database, Phase.INTENT)}
    ended = [
        item["operation_id"]["S"]
        for phase in (Phase.DONE, Phase.FAILED)
        for item in _of_phase(database, phase)
    ]
    require("an operation ends once", len(ended) == len(set(ended)), ended)
    require("each end on record has its intent", begun.issuperset(ended), set(ended) - begun)
    details = {item["detail"]["S"] for item in _of_phase(database, Phase.DONE)}
    missing = [mark for mark in completed if not any(mark in detail for detail in details)]
    require("what was done is on record", not missing, missing)


def _of_phase(database: "Database", phase: Phase) -> Iterator[Mapping[str, Any]]:
    return (item for item in database.tables[AUDIT].every() if item["phase"]["S"] == phase)
