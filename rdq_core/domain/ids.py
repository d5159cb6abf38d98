"""Task ids: ULIDs, minted elsewhere or derived from a business key; and the digests that are made
of them.
"""

import hashlib
import re
from datetime import datetime
from typing import Final

from rdq_core.domain.times import from_millis, to_millis
from rdq_core.errors import InputInvalid

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(f"[0-7][{ALPHABET}]{{25}}")
_ID_BITS: Final = 128
_CHANCE_BITS: Final = 80
_LAST_CHANCE: Final = 2**_CHANCE_BITS - 1


def check_id(value: object, field: str = "id") -> str:
    """A ULID in its canonical upper-case form. Lower case is folded, as the ULID specification
    allows.
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
    """The id that a business key has in a queue: the same key gives the same id, for ever and
    everywhere.

    No time can be read out of it.
    """
    digest = hashlib.sha256(f"{queue}\0{key}".encode()).digest()
    return encode_id(int.from_bytes(digest[: _ID_BITS // 8], "big"))


def encode_id(number: int) -> str:
    """A number of up to 128 bits as 26 characters."""
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def id_at(moment: datetime, chance: str, *, after: str | None = None) -> str:
    """A ULID of this moment, told apart from others by a random text; after another ULID even in
    its millisecond.
    """
    digits = int.from_bytes(hashlib.sha256(chance.encode()).digest()[: _CHANCE_BITS // 8], "big")
    number = to_millis(moment) << _CHANCE_BITS | digits
    return encode_id(number if after is None else max(number, _decoded(after) + 1))


def first_id(moment: datetime) -> str:
    """The first ULID of a moment: those from then on are not below it."""
    return encode_id(to_millis(moment) << _CHANCE_BITS)


def last_id(moment: datetime) -> str:
    """The last ULID of a moment."""
    return encode_id(to_millis(moment) << _CHANCE_BITS | _LAST_CHANCE)


def time_of(ulid: str) -> datetime:
    """The moment in a ULID, which a derived one doesn't have."""
    return from_millis(_decoded(ulid) >> _CHANCE_BITS)


def _decoded(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number << 5 | ALPHABET.index(character)
    return number


def claim_id(token: str) -> str:
    """The public name of a claim: it identifies the claim's records without giving the token away."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shard_of(task_id: str, shards: int, *, queue: str, concurrency_key: str | None = None) -> int:
    """The index shard of a task: spread by id, but all tasks of one concurrency key in one shard,
    in due order.
    """
    if shards < 1:
        raise ValueError(f"shards must be at least 1, not {shards}")
    seed = f"{queue}\0{concurrency_key}" if concurrency_key is not None else task_id
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % shards
