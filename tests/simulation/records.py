"""The invariants of everything but state rows: attempt records, bodies and results."""

from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.rows import Row, outlives
from tests.simulation.verdict import require
from tests.simulation.witness import StoreCall
from tests.support.fake_dynamodb import Change, Database

_TASKS: Final = "rdq-tasks"
_DLQ: Final = "rdq-dlq"
_HOLDS: Final = frozenset({"p", "m"})


class Records:
    """The published history of every life, and what the rows name."""

    def __init__(self) -> None:
        self.chains: dict[tuple[str, str], list[str]] = {}

    def begin(self, database: Database, row: Row) -> None:
        """A life begins, with the failures that it was submitted with."""
        chain: list[str] = []
        key = row.last_attempt
        while key is not None:
            item = database.tables[_DLQ].get((row.task_id, key))
            require("a published attempt is on record", item is not None, key)
            assert item is not None
            chain.append(key)
            key = item["pv"]["S"] if "pv" in item else None
        require("history is as long as it says", len(chain) == row.history_length, row.task_id)
        self.chains[row.task_id, row.life] = chain[::-1]

    def append(self, database: Database, before: Row, after: Row, call: StoreCall) -> None:
        """A row has changed: its history is what it was, or has one record more."""
        chain = self.chains.setdefault((after.task_id, after.life), [])
        if after.history_length == before.history_length:
            require("history stands", after.last_attempt == before.last_attempt, call)
            return
        key = after.last_attempt or ""
        item = database.tables[_DLQ].get((after.task_id, key))
        require("a published attempt is on record", item is not None, call)
        assert item is not None
        numbered = key.startswith(f"A#{before.history_length + 1}#")
        require(
            "attempts are numbered without a gap",
            numbered and after.history_length == len(chain) + 1,
            call,
        )
        follows = (item["pv"]["S"] if "pv" in item else None) == before.last_attempt
        require("a record follows the one before", follows and item["lf"]["S"] == after.life, call)
        fence = item.get("fencing_token", {"N": "0"})["N"]
        require("a record is of the claim that ended", int(fence) == before.fence, call)
        chain.append(key)

    def changed(self, change: Change, row: Row | None) -> None:
        """An item beside the rows has changed. `row` is its task's, unless that is gone."""
        kind = change.key[1]
        match kind.partition("#")[0]:
            case "A":
                published = row is not None and kind in self.chains.get((row.task_id, row.life), ())
                require(
                    "published history is never written again",
                    not published or change.before is None,
                    change.key,
                )
            case "B":
                named = row is not None and row.body_ref == kind[2:]
                self._body_changed(change.before, change.after, named=named)
            case "R":
                named = row is not None and row.result_ref == kind[2:]
                require(
                    "a result is written once",
                    not named or change.after == change.before,
                    change.key,
                )

    def _body_changed(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, named: bool
    ) -> None:
        if after is None:
            require("no live body is removed", not named, before)
            return
        require("a body has content", bool(_HOLDS & after.keys()), after.get("kind"))
        if before is None:
            return
        was, now = before.get("expires_at"), after.get("expires_at")
        kept = now is None or (was is not None and int(now["N"]) >= int(was["N"]))
        require("a body's life never gets shorter", kept, after.get("kind"))

    def check_body(self, database: Database, row: Row) -> None:
        """Before a row names a time of its own, what it names lives longer than that."""
        if row.body_ref is not None:
            self._outlives(database, row, f"B#{row.body_ref}")
        if row.result_ref is not None:
            self._outlives(database, row, f"R#{row.result_ref}")

    def _outlives(self, database: Database, row: Row, kind: str) -> None:
        item = database.tables[_TASKS].get((row.task_id, kind))
        require("what a row names is there", item is not None, f"{row.task_id}/{kind}")
        assert item is not None
        require("what a row names outlives it", outlives(item, row), f"{row.task_id}/{kind}")
