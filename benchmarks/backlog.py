"""The requests of a sweep over a queue with a backlog, which must not grow with the backlog."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.ids import encode_id
from rdq_core.domain.times import to_millis
from rdq_core.engine.sweep import SweepLimits
from rdq_core.handlers.registry import Registry
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.stores.dynamodb.schema import DUE_INDEX, Attr
from rdq_core.testing.embedded import on_tables

QUEUE: Final = "billing"
SHARDS: Final = 4
CLAIMED: Final = 100
_STORED: Final = 200


class Behind:
    """A DynamoDB client whose due index shows any number of made-up entries after the stored ones.

    No test engine could store that many: each query of moto or ministack scans the whole table.
    Counts the requests, and the index entries that they returned.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._due_at = 0
        self._unstored = 0
        self.requests: Counter[str] = Counter()
        self.entries_read = 0

    def fall_behind(self, unstored: int, due_at: datetime) -> None:
        """Add `unstored` entries to each shard, due at `due_at`, and reset the counts."""
        self._unstored, self._due_at = unstored, to_millis(due_at)
        self.requests.clear()
        self.entries_read = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not callable(attribute) or name in ("exceptions", "meta"):
            return attribute

        def call(**request: Any) -> Any:
            self.requests[name] += 1
            return attribute(**request)

        return call

    def query(self, **request: Any) -> Any:
        """The stored entries, which are the oldest, then the made-up ones."""
        self.requests["query"] += 1
        if request.get("IndexName") != DUE_INDEX:
            return self._client.query(**request)
        start = request.get("ExclusiveStartKey", {})
        answer = {"Items": []} if "unstored" in start else self._client.query(**request)
        until = int(request["ExpressionAttributeValues"][":until"]["N"])
        if self._unstored and "LastEvaluatedKey" not in answer and until >= self._due_at:
            self._append(answer, request, start.get("unstored", 0))
        self.entries_read += len(answer["Items"])
        return answer

    def _append(self, answer: dict[str, Any], request: dict[str, Any], start: int) -> None:
        room = request["Limit"] - len(answer["Items"])
        end = min(start + room, self._unstored)
        answer["Items"] += [_entry(number, self._due_at) for number in range(start, end)]
        if end < self._unstored:
            answer["LastEvaluatedKey"] = {"unstored": end}


def _entry(number: int, due_at: int) -> dict[str, Any]:
    return {
        Attr.TASK_ID: {"S": encode_id((1 << 100) + number)},
        Attr.DUE_AT: {"N": str(due_at)},
        Attr.STATUS: {"S": "PENDING"},
        Attr.FENCING_TOKEN: {"N": "1"},
        Attr.HANDLER_REF: {"S": "charge"},
    }


def sweep_of(client: Any, due: int) -> Behind:
    """The client, after a sweep that claimed and completed 100 of `due` tasks."""
    behind = Behind(client)
    local = on_tables(behind, {QUEUE: {"index_shards": SHARDS}})
    for _ in range(_STORED):
        local.rdq.submit(QUEUE, "charge", b"x" * 300)
    local.advance("1h")
    behind.fall_behind((due - _STORED) // SHARDS, local.clock.now())
    registry = Registry(queues=[QUEUE])

    def charge(payload: bytes) -> None:
        del payload

    registry.register("charge", charge)
    sweeper = build_sweeper(local.parts, registry, serves=[QUEUE], worker="benchmark:1")
    limits = SweepLimits(horizon=timedelta(0), linger=timedelta(0), max_tasks=CLAIMED)
    done = sweeper.sweep(limits).total.completed
    if done != CLAIMED:
        raise RuntimeError(f"{done} tasks were completed instead of {CLAIMED}")
    return behind
