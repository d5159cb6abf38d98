"""Records operators' requests: an intent before the first write, the end after the last.

The invariant: an operation without an intent on record was not begun. One with an intent and no end
was interrupted.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rdq_core.domain import limits
from rdq_core.domain.ids import id_at
from rdq_core.engine.ports import AuditLog, AuditRecord, Clock, IdSource, Phase
from rdq_core.errors import RdqError, StoreFailed, Unavailable

MAX_REASON_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request. `verified` when AWS vouches for the name; otherwise it is a claim."""

    name: str
    verified: bool = False


class Auditor:
    """Records the operations of one principal, in order even within a millisecond. Safe between
    threads.
    """

    def __init__(self, log: AuditLog, principal: Principal, *, clock: Clock, ids: IdSource) -> None:
        self._log = log
        self._principal = principal
        self._clock = clock
        self._ids = ids
        self._last: str | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def recorded(
        self,
        operation: str,
        queue: str,
        *,
        reason: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Wrap the writes of an operation. What the caller puts into the mapping is stored with the
        operation's end.

        Raises InputInvalid for a reason that is too long; StoreFailed or Unavailable when the
        intent can't be stored, and then nothing was begun.
        """
        intent = self.begin(operation, queue, reason=reason, detail=detail)
        result: dict[str, Any] = {}
        try:
            yield result
        except Exception as error:
            # The operation's own error matters more than a missing record of it.
            with contextlib.suppress(StoreFailed, Unavailable):
                self._end(
                    intent,
                    Phase.FAILED,
                    {"code": error.code if isinstance(error, RdqError) else "internal"},
                )
            raise
        try:
            self._end(intent, Phase.DONE, result)
        except StoreFailed as failed:
            failed.hint = (
                f"{operation} of {queue} was done all the same; the audit log has its intent"
            )
            raise

    def begin(
        self,
        operation: str,
        queue: str,
        *,
        reason: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> AuditRecord:
        """Record an intent whose end is recorded elsewhere, later. Raises as `recorded` does."""
        if reason is not None:
            limits.check_text("reason", reason, most=MAX_REASON_BYTES)
        intent = self._record(operation, queue, reason, Phase.INTENT, detail or {})
        self._log.append(intent)
        return intent

    def _end(self, intent: AuditRecord, phase: Phase, detail: Mapping[str, Any]) -> None:
        self._log.append(
            self._record(intent.operation, intent.queue, intent.reason, phase, detail, of=intent)
        )

    def _record(
        self,
        operation: str,
        queue: str,
        reason: str | None,
        phase: Phase,
        detail: Mapping[str, Any],
        *,
        of: AuditRecord | None = None,
    ) -> AuditRecord:
        now = self._clock.now()
        with self._lock:
            # Above the last one: records of an operation sort in order, whatever the clock does.
            self._last = record_id = id_at(now, self._ids.token(), after=self._last)
        return AuditRecord(
            id=record_id,
            operation_id=of.operation_id if of else record_id,
            at=now,
            principal=self._principal.name,
            verified=self._principal.verified,
            operation=operation,
            queue=queue,
            reason=reason,
            phase=phase,
            detail=detail,
        )
