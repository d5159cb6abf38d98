"""Content too large for an item, in S3: the item keeps the object's key, as a claim check.

The invariant: an object stays at least as long as the item that names it. Keys begin with how long
their object stays, and lifecycle rules on those prefixes expire orphans.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from rdq_core.errors import Unavailable
from rdq_core.stores.dynamodb.request_failures import FailureKind
from rdq_core.stores.dynamodb.sender import Refused, RequestRetries
from rdq_core.stores.dynamodb.values import seconds_up

T = TypeVar("T")

LIFETIMES: Final = {"90d": timedelta(days=90), "500d": timedelta(days=500)}
"""Prefixes of keys, and the age at which a lifecycle rule expires their objects."""
UNEXPIRING: Final = "keep"
"""The prefix of objects that no rule expires: those of tasks that never expire. The clean-up
deletes them when their task is purged or forgotten.
"""

IN_S3: Final = "s3-"
"""How the name of a body or result begins whose content is in S3."""


class ClaimCheck:
    """The bucket for large payloads and results.

    Each method raises StoreFailed when repeating the request has not helped, and Unavailable when
    an operator has to act.
    """

    def __init__(self, client: Any, bucket: str, retries: RequestRetries) -> None:
        self._client = client
        self._bucket = bucket
        self._retries = retries

    def put(self, key: str, content: bytes) -> None:
        """Store content. Repeating this changes nothing."""
        self._send(
            "s3:PutObject",
            lambda: self._client.put_object(Bucket=self._bucket, Key=key, Body=content),
        )

    def get(self, key: str) -> bytes | None:
        """The content, None when there is none."""
        try:
            return self._send("s3:GetObject", lambda: self._read(key), writes=False)
        except Refused as refused:
            # S3 says so only to roles with s3:ListBucket; to others it answers AccessDenied
            # ("GetObject", Permissions).
            if refused.failure.code == "NoSuchKey":
                return None
            raise refused.error from None

    def copy(self, key: str, to: str) -> bool:
        """Store the same content under another key; False when there is none."""
        # S3 counts the copy as new, so that the lifecycle rule of its prefix begins anew.
        source = {"Bucket": self._bucket, "Key": key}
        try:
            self._send(
                "s3:PutObject",
                lambda: self._client.copy_object(Bucket=self._bucket, Key=to, CopySource=source),
            )
        except Refused as refused:
            if refused.failure.code == "NoSuchKey":
                return False
            raise refused.error from None
        return True

    def delete(self, key: str) -> None:
        """Remove content if there is any."""
        self._send(
            "s3:DeleteObject", lambda: self._client.delete_object(Bucket=self._bucket, Key=key)
        )

    def unexpiring(self, *, after: str | None, limit: int) -> list[tuple[str, datetime]]:
        """The keys of objects that no rule expires, in order, each with the time of its last
        write.
        """
        # A key and no continuation token: the search goes on in another invocation, days later.
        start = {} if after is None else {"StartAfter": after}
        answer = self._send(
            "s3:ListBucket",
            lambda: self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=f"{UNEXPIRING}/", MaxKeys=limit, **start
            ),
            writes=False,
        )
        return [(each["Key"], each["LastModified"]) for each in answer.get("Contents", ())]

    def _read(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def _send(self, action: str, call: Callable[[], T], *, writes: bool = True) -> T:
        try:
            return self._retries.send(
                call, what=lambda: f"{action} on {self._bucket}", writes=writes
            )
        except Refused as refused:
            if refused.failure.kind is not FailureKind.UNAVAILABLE:
                raise
            raise Unavailable(
                f"{action} on {self._bucket} is not possible: {refused.failure.code}"
            ) from None


def object_key(task_id: str, ref: str, *, ends_at: datetime | None, now: datetime) -> str:
    """The key of an object that stays until `ends_at` (None: for good). Each end has a key of its
    own, since a lifecycle rule counts from the object's creation.
    """
    if ends_at is None:
        return f"{UNEXPIRING}/{task_id}/{ref}"
    lifetime = next((name for name, span in LIFETIMES.items() if ends_at - now <= span), UNEXPIRING)
    return f"{lifetime}/{task_id}/{ref}-{seconds_up(ends_at)}"


def task_of(key: str) -> str:
    """The task that an object's key belongs to."""
    return key.split("/")[1]


def is_content_of(key: str, ref: str) -> bool:
    """Whether an object's key belongs to the body or result with this name, with any end."""
    name = key.rpartition("/")[2]
    end = name.removeprefix(f"{ref}-")
    return name == ref or (end != name and end.isdecimal())
