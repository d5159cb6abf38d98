"""An operator's desk with the stores behind it, all in memory, on a clock that the test moves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rdq_core.config.document import parse_document
from rdq_core.engine.auditor import Principal
from rdq_core.engine.ports import QueueStore
from rdq_core.ops.audit import AuditDesk
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.ops.queues import QueueDesk
from rdq_core.stores.memory_control import MemoryQueues
from tests.engine.world import World

FILE = """
config_version: 1
defaults:
  retry: {max_attempts: 4}
queues:
  billing:
    owner: team-payments
  email:
    index_shards: 8
"""
ANN = Principal("ann", verified=True)


class Office:
    """No queue at all, until a file is applied."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.queues = MemoryQueues(clock=self.clock)
        self.store = self.world.store
        self.audit = self.world.audit
        self.desk = QueueDesk(self.queues, self.store, clock=self.clock)
        self.auditor = self.world.parts.auditor(ANN)
        self.edits = self.editor(self.queues)
        self.log = AuditDesk(self.audit, self.queues, self.world.parts.cursors(), clock=self.clock)

    def editor(self, queues: QueueStore) -> QueueEditor:
        """What changes queues, in a store that may be disturbed."""
        removals = replace(self.world.parts, queues=queues).removals(self.auditor)
        return QueueEditor(
            queues,
            self.store,
            self.auditor,
            removals,
            clock=self.clock,
            sleeper=self.world.parts.idle,
        )

    def apply(self, text: str = FILE) -> list[dict[str, Any]]:
        return [applied.as_dict() for applied in self.edits.apply(parse_document(text))]

    def diff(self, text: str = FILE) -> list[dict[str, Any]]:
        return [each.as_dict() for each in self.desk.diff(parse_document(text))]

    def set(self, *assignments: str, reason: str = "a rush", **options: Any) -> dict[str, Any]:
        return self.edits.set("billing", assignments, reason=reason, **options)

    def records(self, *fields: str) -> Sequence[Any]:
        """What is on record, oldest first: of each record these fields."""
        items = self.log.list()["items"]
        return [tuple(item[field] for field in fields) for item in reversed(items)]
