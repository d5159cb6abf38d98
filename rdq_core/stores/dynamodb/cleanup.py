"""Cleaning up behind state rows that were removed or replaced, as the tasks table's stream tells
it.

    T of a life removed (TTL, purge, forget) or replaced by another life
        └► its attempt records, and the body, result and references that have no end of their own
    a body or result removed, with content in S3 that no rule expires
        └► that content

The invariant: a life that is gone never comes back, and nothing is deleted but what belongs to a
life that a consistent read shows to be gone. So a record that comes twice, late or out of order
does no harm.
"""

from collections.abc import Mapping
from typing import Any

from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.claim_check import LASTING, task_of
from rdq_core.stores.dynamodb.owner import owner_of, text_of
from rdq_core.stores.dynamodb.schema import STATE, Attr


class CleaningUp:
    """The verb of whoever reads the stream."""

    _access: Access

    def clean_up(self, record: Mapping[str, Any]) -> None:
        """See `Orphans.clean_up`. `record` is in DynamoDB's own form, with both images."""
        images = record.get("dynamodb", {})
        old, new = images.get("OldImage") or {}, images.get("NewImage") or {}
        if text_of(old, Attr.KIND) != STATE:
            self._clean_up_object("" if new else text_of(old, Attr.S3_KEY) or "")
        elif text_of(old, Attr.LIFE) not in (None, text_of(new, Attr.LIFE)):
            self._clean_up_life(old, str(text_of(old, Attr.LIFE)))

    def _clean_up_life(self, old: Mapping[str, Any], life: str) -> None:
        task_id = str(text_of(old, Attr.TASK_ID))
        if owner_of(self._access, task_id).may_be_of(life):
            return
        self._access.history.discard_life(task_id, life)
        # What has an end goes by itself, for nothing; deleting it would cost its whole size.
        body = None if Attr.BODY_ENDS_AT in old else text_of(old, Attr.BODY_REF)
        result = None if Attr.EXPIRES_AT in old else text_of(old, Attr.RESULT_REF)
        self._access.bodies.discard(task_id, bodies=(body,), results=(result,))
        if Attr.REFERENCES_END_AT not in old:
            self._access.references.discard(
                task_id, life, (text_of(old, Attr.REFERENCES) or "").split()
            )

    def _clean_up_object(self, s3_key: str) -> None:
        objects = self._access.bodies.objects
        if objects is None or not s3_key.startswith(f"{LASTING}/"):
            return
        if not owner_of(self._access, task_of(s3_key)).may_want_object(s3_key):
            objects.delete(s3_key)
