"""The key that page cursors are signed with, in the control table: made once, by whoever needs it
first.
"""

import threading
from typing import Any, Final

from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.errors import CorruptItem
from rdq_core.stores.dynamodb.expressions import NO_SECRET_YET, all_of
from rdq_core.stores.dynamodb.schema import CURSOR_SECRET, Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender
from rdq_core.stores.dynamodb.values import Item, Reader, binary, text

_KEY: Final[Item] = {Attr.PK: text(CURSOR_SECRET), Attr.SK: text("key")}
_FEWEST: Final = 16


class DynamoCursorKey:
    """A `CursorKey` in the control table. Safe between threads; it is read once a process."""

    def __init__(
        self, client: Any, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids
        self._lock = threading.Lock()
        self._known: bytes | None = None

    def key(self) -> bytes:
        """See `CursorKey.key`. Raises CorruptItem for one that was edited by hand."""
        with self._lock:
            if self._known is None:
                self._known = _read(self._sender.get(self._table, _KEY) or self._made())
            return self._known

    def _made(self) -> Item:
        """Two tokens of 122 bits at least, if nobody was faster."""
        item = {**_KEY, Attr.SECRET: binary((self._ids.token() + self._ids.token()).encode())}
        try:
            self._sender.put(self._table, item, all_of(NO_SECRET_YET), {})
        except ConditionFailed as refused:
            return dict(refused.row or item)
        return item


def _read(item: Item) -> bytes:
    reader = Reader(item, "the key of page cursors")
    key = reader.maybe_bytes(Attr.SECRET)
    if key is None or len(key) < _FEWEST:
        raise CorruptItem(
            "the key of page cursors cannot be read",
            hint=f"delete the item {CURSOR_SECRET} of the control table",
        )
    return key
