"""An operator with readers and an editor of queues, on stores in memory and a clock that the test
moves.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rdq_core.config.document import parse_document
from rdq_core.engine.auditor import Principal
from rdq_core.engine.ports import QueueStore
from rdq_core.ops.audit_reader import AuditReader
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.ops.queues import QueueReader
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


class Operator:
    """No queue at all, until a file is applied."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.queues = MemoryQueues(clock=self.clock)
        self.store = self.world.store
        self.audit = self.world.audit
        parts = replace(self.world.parts, queues=self.queues)
        self.reader = QueueReader(parts)
        self.auditor = self.world.parts.auditor(ANN)
        self.edits = self.editor(self.queues)
        self.log = AuditReader(parts)

    def editor(self, queues: QueueStore) -> QueueEditor:
        """What changes queues, in a store that may be disturbed."""
        return QueueEditor(replace(self.world.parts, queues=queues), self.auditor)

    def apply(self, text: str = FILE) -> list[dict[str, Any]]:
        return [applied.as_dict() for applied in self.edits.apply(parse_document(text))]

    def diff(self, text: str = FILE) -> list[dict[str, Any]]:
        return [each.as_dict() for each in self.reader.diff(parse_document(text))]

    def set(self, *assignments: str, reason: str = "a rush", **options: Any) -> dict[str, Any]:
        return self.edits.set("billing", assignments, reason=reason, **options)

    def records(self, *fields: str) -> Sequence[Any]:
        """What is on record, oldest first: of each record these fields."""
        items = self.log.list()["items"]
        return [tuple(item[field] for field in fields) for item in reversed(items)]
