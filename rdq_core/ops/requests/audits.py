"""Requests about the audit log."""

from typing import ClassVar, Final

from rdq_core.domain.times import parse_time
from rdq_core.ops.requests.desks import Desks, Document, Request, Who


class ListAudit(Request):
    """What was done, the newest first."""

    op: ClassVar[str] = "audit.list"
    queue: str | None = None
    principal: str | None = None
    since: str | None = None
    page_size: int = 50
    cursor: str | None = None

    def answer(self, desks: Desks, who: Who) -> Document:  # noqa: ARG002 - everybody may look
        """The records, and the cursor of the next page."""
        return desks.audit_desk().list(
            self.queue,
            principal=self.principal,
            since=None if self.since is None else parse_time(self.since, "since"),
            page_size=self.page_size,
            cursor=self.cursor,
        )


REQUESTS: Final = (ListAudit,)
