"""Which queues have a sweep that is awake: one item a queue in the control table, written only
while there is work.
"""

import contextlib
from datetime import datetime

from rdq_core.engine.ports import IdSource, Jitter, Sleeper
from rdq_core.stores.dynamodb.expressions import (
    AWAKE_ENDS_SOONER,
    IS_ASLEEP,
    WAS_EVER_AWAKE,
    all_of,
    change,
)
from rdq_core.stores.dynamodb.schema import Attr, Tables
from rdq_core.stores.dynamodb.transact import ConditionFailed, Sender, update_of
from rdq_core.stores.dynamodb.values import Item, Value, moment, number, text


class DynamoReservations:
    """A `Reservations` in the control table. Safe between threads, processes and hosts."""

    def __init__(
        self, client: object, tables: Tables, *, ids: IdSource, jitter: Jitter, sleeper: Sleeper
    ) -> None:
        self._sender = Sender(client, jitter=jitter, sleeper=sleeper)
        self._table = tables.control
        self._ids = ids

    def extend(self, queue: str, *, until: datetime) -> None:
        """See `Reservations.extend`."""
        with contextlib.suppress(ConditionFailed):
            self._change(
                queue,
                {Attr.AWAKE_UNTIL: moment(until)},
                AWAKE_ENDS_SOONER,
                {":until": moment(until)},
            )

    def release(self, queue: str) -> None:
        """See `Reservations.release`."""
        with contextlib.suppress(ConditionFailed):
            self._change(queue, {Attr.AWAKE_UNTIL: number(0)}, WAS_EVER_AWAKE, {})

    def acquire(self, queue: str, *, now: datetime, until: datetime) -> bool:
        """See `Reservations.acquire`."""
        mark = text(self._ids.nonce())
        sets = {Attr.AWAKE_UNTIL: moment(until), Attr.AWAKENED_BY: mark}
        try:
            self._change(queue, sets, IS_ASLEEP, {":now": moment(now)})
        except ConditionFailed as refused:
            # Our own booking, of which the answer was lost, is still ours.
            return (refused.row or {}).get(Attr.AWAKENED_BY) == mark
        return True

    def _change(
        self, queue: str, sets: dict[Attr, Value], condition: str, values: dict[str, Value]
    ) -> None:
        self._sender.change(
            update_of(self._table, _key(queue), change(sets), all_of(condition), values)
        )


def _key(queue: str) -> Item:
    return {Attr.PK: text(f"kick#{queue}"), Attr.SK: text("awake")}
