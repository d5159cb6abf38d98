"""The context of a handler that is called directly and not by a sweep, for example in tests."""

from datetime import UTC, datetime, timedelta
from typing import Final

from rdq_core.domain.lease import Claim
from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import cut_to_millis
from rdq_core.engine.context import TaskContext

_TASK_ID: Final = "0" * 26
_TIME_TO_RUN: Final = timedelta(hours=1)


class _WallClock:
    def now(self) -> datetime:
        return cut_to_millis(datetime.now(UTC))

    def monotonic(self) -> float:
        return datetime.now(UTC).timestamp()


def detached_context(
    ref: str, queue: str, payload: bytes, *, task_id: str = _TASK_ID
) -> TaskContext:
    """The context of a first attempt that is in no store.

    It is never cancelled, never loses its lease, and its deadline is an hour away.
    """
    clock = _WallClock()
    now = clock.now()
    ends_at = now + _TIME_TO_RUN
    task = Task(
        id=task_id,
        queue=queue,
        handler_ref=ref,
        payload=payload,
        payload_content_type="application/json",
        status=Status.IN_FLIGHT,
        lease_expires_at=ends_at,
        created_at=now,
    )
    claim = Claim(task=task, token="", fencing_token=1, claimed_at=now, lease_expires_at=ends_at)
    return TaskContext(task, claim, deadline=ends_at, clock=clock, extend=lambda: None)
