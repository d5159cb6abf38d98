"""The reference of the audit log: a list behind a lock, gone with the process."""

import threading
from collections.abc import Sequence
from datetime import datetime

from rdq_core.engine.ports import AuditRecord
from rdq_core.errors import StoreFailed


class MemoryAudit:
    """An `AuditLog` in this process's memory, safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, AuditRecord] = {}

    def append(self, record: AuditRecord) -> None:
        """See `AuditLog.append`."""
        with self._lock:
            if self._records.setdefault(record.id, record) != record:
                raise StoreFailed(
                    f"audit record {record.id} is there already", may_have_happened=False
                )

    def records(
        self, queue: str, *, since: datetime, before: str, limit: int
    ) -> Sequence[AuditRecord]:
        """See `AuditLog.records`."""
        with self._lock:
            found = [
                record
                for record in self._records.values()
                if record.queue == queue and record.at >= since and record.id < before
            ]
        return sorted(found, key=lambda record: record.id, reverse=True)[:limit]
