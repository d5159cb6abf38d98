"""Content too large for an item, in S3: the item keeps the key, as a claim check.

Keys begin with how long their object stays, and lifecycle rules on those prefixes remove what
nobody removed: an orphan goes by itself. The invariant: an object stays at least as long as the
item that names it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from rdq_core.errors import Unavailable
from rdq_core.stores.dynamodb.faults import Kind
from rdq_core.stores.dynamodb.transact import Patience, Refused
from rdq_core.stores.dynamodb.values import seconds_up

T = TypeVar("T")

LIFETIMES: Final = {"90d": timedelta(days=90), "500d": timedelta(days=500)}
"""Prefixes of keys, and after how many days a lifecycle rule expires their objects."""
LASTING: Final = "keep"
"""The prefix of objects that no rule expires: their task stays for good, or until somebody removes
it.
"""

CHECKED: Final = "s3-"
"""How the name of a body or result begins whose content is in S3."""


class ClaimCheck:
    """A bucket for large payloads and results. Raises Unavailable when it can't be used from here,
    StoreFailed.
    """

    def __init__(self, client: Any, bucket: str, patience: Patience) -> None:
        self._client = client
        self._bucket = bucket
        self._patience = patience

    def put(self, key: str, content: bytes) -> None:
        """Store content. Doing so again changes nothing."""
        self._send(
            "s3:PutObject",
            lambda: self._client.put_object(Bucket=self._bucket, Key=key, Body=content),
        )

    def get(self, key: str) -> bytes | None:
        """The content, None when it isn't there."""
        try:
            return self._send("s3:GetObject", lambda: self._read(key), writes=False)
        except Refused as refused:
            if refused.fault.code == "NoSuchKey":
                return None
            raise refused.error from None

    def copy(self, key: str, to: str) -> bool:
        """Store the same content under another key; False when it isn't there."""
        source = {"Bucket": self._bucket, "Key": key}
        try:
            self._send(
                "s3:PutObject",
                lambda: self._client.copy_object(Bucket=self._bucket, Key=to, CopySource=source),
            )
        except Refused as refused:
            if refused.fault.code == "NoSuchKey":
                return False
            raise refused.error from None
        return True

    def delete(self, key: str) -> None:
        """Remove content, there or not."""
        self._send(
            "s3:DeleteObject", lambda: self._client.delete_object(Bucket=self._bucket, Key=key)
        )

    def lasting(self, *, after: str | None, limit: int) -> list[tuple[str, datetime]]:
        """Keys of objects that no rule expires, in their order, and since when each is there."""
        start = {} if after is None else {"StartAfter": after}
        answer = self._send(
            "s3:ListBucket",
            lambda: self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=f"{LASTING}/", MaxKeys=limit, **start
            ),
            writes=False,
        )
        return [(each["Key"], each["LastModified"]) for each in answer.get("Contents", ())]

    def _read(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return content

    def _send(self, action: str, call: Callable[[], T], *, writes: bool = True) -> T:
        try:
            return self._patience.send(call, what=f"{action} on {self._bucket}", writes=writes)
        except Refused as refused:
            if refused.fault.kind is not Kind.UNAVAILABLE:
                raise
            raise Unavailable(
                f"{action} on {self._bucket} is not possible: {refused.fault.code}"
            ) from None


def task_of(key: str) -> str:
    """The task that an object of this key belongs to."""
    return key.split("/")[1]


def is_of(key: str, ref: str) -> bool:
    """Whether an object of this key is content of the body or result with this name, whatever its
    end.
    """
    name = key.rpartition("/")[2]
    end = name.removeprefix(f"{ref}-")
    return name == ref or (end != name and end.isdecimal())


def key_for(task_id: str, ref: str, *, ends_at: datetime | None, now: datetime) -> str:
    """The key of an object that stays until `ends_at`, None: for good. Each end gives a key of its
    own.
    """
    if ends_at is None:
        return f"{LASTING}/{task_id}/{ref}"
    lifetime = next((name for name, span in LIFETIMES.items() if ends_at - now <= span), LASTING)
    return f"{lifetime}/{task_id}/{ref}-{seconds_up(ends_at)}"
