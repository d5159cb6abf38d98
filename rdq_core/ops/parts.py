"""The parts of an rdq that operator requests and bulk operations work on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.engine.cancel import Canceller
from rdq_core.engine.ports import (
    AuditLog,
    Clock,
    CursorKey,
    ErrorSink,
    EventSink,
    IdSource,
    JobStore,
    QueueStore,
    Sleeper,
    TaskStore,
)
from rdq_core.engine.redrive import Redriver

if TYPE_CHECKING:
    from rdq_core.engine.removal import Removals


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorParts:
    """The stores, the clock and the ids. Readers and editors of `rdq_core.ops` are built from it.

    `idle` waits for storage to change; `on_error` receives errors that belong to no request.
    """

    store: TaskStore
    queues: QueueStore
    jobs: JobStore
    audit: AuditLog
    cursor_key: CursorKey
    clock: Clock
    ids: IdSource
    idle: Sleeper
    events: EventSink
    on_error: ErrorSink

    def auditor(self, principal: Principal) -> Auditor:
        """Records the operations of this principal."""
        return Auditor(self.audit, principal, clock=self.clock, ids=self.ids)

    def canceller(self) -> Canceller:
        """Cancels tasks."""
        return Canceller(self.store, self.queues, clock=self.clock, events=self.events)

    def redriver(self) -> Redriver:
        """Sends dead tasks back, or purges them."""
        return Redriver(self.store, self.queues, clock=self.clock, events=self.events)

    def removals(self, auditor: Auditor) -> "Removals":
        """Completes deletions of queues."""
        # Imported here: submitters build these parts too, and delete no queue.
        from rdq_core.engine.removal import Removals

        return Removals(self.queues, self.store, auditor, clock=self.clock, on_error=self.on_error)
