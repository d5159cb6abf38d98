"""Task ids, which are ULIDs: checks, derivation from a business key, and digests of ids."""

import hashlib
import re
from datetime import datetime
from typing import Final

from rdq_core.domain.times import from_millis, to_millis
from rdq_core.errors import InputInvalid

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(f"[0-7][{ALPHABET}]{{25}}")
_ID_BITS: Final = 128
_RANDOM_BITS: Final = 80
_MAX_RANDOM: Final = 2**_RANDOM_BITS - 1


def check_id(value: object, field: str = "id") -> str:
    """The ULID in its canonical upper-case form. Lower case is accepted, as the ULID specification
    allows. Raises InputInvalid.
    """
    if not isinstance(value, str):
        raise InputInvalid(field, f"must be text, not {type(value).__name__}")
    folded = value.upper() if value.isascii() else value
    if not _ULID.fullmatch(folded):
        raise InputInvalid(
            field, "is not a ULID (26 characters of Crockford's base 32, the first 0 to 7)"
        )
    return folded


def derive_id(queue: str, key: str) -> str:
    """The id of a business key in a queue: the same key always gives the same id. It contains no
    time.
    """
    digest = hashlib.sha256(f"{queue}\0{key}".encode()).digest()
    return encode_id(int.from_bytes(digest[: _ID_BITS // 8], "big"))


def encode_id(number: int) -> str:
    """A number of up to 128 bits in Crockford's base 32: 26 characters."""
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def id_at(moment: datetime, random_text: str, *, after: str | None = None) -> str:
    """A ULID of this moment, made unique by a random text. With `after` it is greater than that
    ULID, even within a millisecond.
    """
    digits = int.from_bytes(
        hashlib.sha256(random_text.encode()).digest()[: _RANDOM_BITS // 8], "big"
    )
    number = to_millis(moment) << _RANDOM_BITS | digits
    return encode_id(number if after is None else max(number, _decoded(after) + 1))


def first_id(moment: datetime) -> str:
    """The smallest ULID of a moment."""
    return encode_id(to_millis(moment) << _RANDOM_BITS)


def last_id(moment: datetime) -> str:
    """The greatest ULID of a moment."""
    return encode_id(to_millis(moment) << _RANDOM_BITS | _MAX_RANDOM)


def time_of(ulid: str) -> datetime:
    """The moment in a ULID. Meaningless for a derived one, which has none."""
    return from_millis(_decoded(ulid) >> _RANDOM_BITS)


def _decoded(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number << 5 | ALPHABET.index(character)
    return number


def shard_of(task_id: str, shards: int, *, queue: str, concurrency_key: str | None = None) -> int:
    """The index shard of a task: by its id, or by its concurrency key, so that all tasks of a key
    are in one shard, in due order.
    """
    if shards < 1:
        raise ValueError(f"shards must be at least 1, not {shards}")
    seed = f"{queue}\0{concurrency_key}" if concurrency_key is not None else task_id
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % shards
