"""What the engine needs from outside, as it would be read aloud. Stores and hosts implement it; the
names are final.
"""

from rdq_core.engine.ports.host import (
    Clock,
    ErrorSink,
    EventSink,
    Handler,
    HandlerSource,
    IdSource,
    Invoker,
    Jitter,
    Sleeper,
)
from rdq_core.engine.ports.operations import (
    AuditLog,
    AuditRecord,
    BackgroundWork,
    CursorKey,
    JobStore,
    Phase,
)
from rdq_core.engine.ports.queues import (
    QueueSource,
    QueueStore,
    RateLimiter,
    Reservations,
)
from rdq_core.engine.ports.tasks import (
    KEY_BUSY,
    Candidate,
    KeyBusy,
    Kind,
    OrphanReport,
    Orphans,
    Page,
    QueueCounts,
    Submission,
    TaskStore,
)

__all__ = [
    "KEY_BUSY",
    "AuditLog",
    "AuditRecord",
    "BackgroundWork",
    "Candidate",
    "Clock",
    "CursorKey",
    "ErrorSink",
    "EventSink",
    "Handler",
    "HandlerSource",
    "IdSource",
    "Invoker",
    "Jitter",
    "JobStore",
    "KeyBusy",
    "Kind",
    "OrphanReport",
    "Orphans",
    "Page",
    "Phase",
    "QueueCounts",
    "QueueSource",
    "QueueStore",
    "RateLimiter",
    "Reservations",
    "Sleeper",
    "Submission",
    "TaskStore",
]
