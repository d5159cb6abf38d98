"""Requests about the audit log."""

from datetime import datetime
from typing import ClassVar

from rdq_core.ops.audit_reader import AuditReader
from rdq_core.ops.requests.context import Document, Request, RequestContext, operation


@operation
class ListAudit(Request):
    """What was done, the newest first."""

    op: ClassVar[str] = "audit.list"
    queue: str | None = None
    principal: str | None = None
    since: datetime | None = None
    page_size: int = 50
    cursor: str | None = None

    def answer(self, context: RequestContext) -> Document:
        """The records, and the cursor of the next page."""
        return AuditReader(context.parts).list(
            self.queue,
            principal=self.principal,
            since=self.since,
            page_size=self.page_size,
            cursor=self.cursor,
        )
