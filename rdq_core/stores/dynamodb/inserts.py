"""New rows, 25 a request, where the engine can: PartiQL's INSERT writes an item only when its key
is unused.

What an insert doesn't surely carry out is left to a conditional put of the same item, which tells
our own from another's. So nothing depends on what such a request answers: an engine that can't, a
role that may not, and a lost answer cost time and nothing else.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rdq_core.stores.dynamodb.faults import Kind, understand
from rdq_core.stores.dynamodb.transact import Sender
from rdq_core.stores.dynamodb.values import Item

_CHANCES: Final = 3
"""How many broken answers in a row, with no good one before, mean that the engine can't."""
_SAYS_LITTLE: Final = frozenset({Kind.BROKEN, Kind.CONFLICT, Kind.THROTTLED, Kind.NOT_SENT})


class Inserts:
    """Inserts into one table. Whether the engine can is found out by asking: by the first rows of a
    process.
    """

    def __init__(self, sender: Sender, table: str) -> None:
        self._sender = sender
        self._table = table
        self._asking = threading.Lock()
        self._works: bool | None = None
        self._broken = 0

    def insert(self, items: Sequence[Item]) -> list[bool]:
        """Which of the items, whose keys differ, were written. Of the others nothing is known."""
        if self._works is None:
            with self._asking:
                return self._insert(items)
        return self._insert(items)

    def _insert(self, items: Sequence[Item]) -> list[bool]:
        nothing = [False] * len(items)
        if self._works is False:
            return nothing
        try:
            answers = self._sender.execute_once([_statement(self._table, item) for item in items])
        # an engine that plays DynamoDB in this process fails in its own ways
        except Exception as error:  # noqa: BLE001
            self._judge(understand(error).kind)
            return nothing
        self._works = True
        return (
            ["Error" not in answer for answer in answers] if len(answers) == len(items) else nothing
        )

    def _judge(self, kind: Kind) -> None:
        if self._works is None:
            self._broken += kind is Kind.BROKEN
            if kind not in _SAYS_LITTLE or self._broken >= _CHANCES:
                self._works = False


def _statement(table: str, item: Mapping[str, Any]) -> dict[str, Any]:
    # Names are ours and have no quotes in them; every value is a parameter.
    names = ", ".join(f"'{name}': ?" for name in item)
    return {
        "Statement": f'INSERT INTO "{table}" VALUE {{{names}}}',
        "Parameters": list(item.values()),
    }
