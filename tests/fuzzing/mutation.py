"""Valid examples made wrong: text and bytes, plain data, and DynamoDB's items, each by a seed's
dice.
"""

import copy
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final


def _bomb() -> bytes:
    # A full flush forgets what was packed before, so that each mebibyte of zeros gives the same
    # block and only one has to be packed. The end is Adler-32 of that many zeros (RFC 1950, 8.2).
    packer, mebibyte = zlib.compressobj(9, wbits=-zlib.MAX_WBITS), 1024 * 1024
    block = packer.compress(bytes(mebibyte)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = (300 * mebibyte % 65_521) << 16 | 1
    return b"\x78\xda" + block * 300 + packer.flush() + checksum.to_bytes(4, "big")


BOMB: Final = _bomb()
"""Three hundred megabytes, packed into what an item may have."""

_TOKENS: Final = (
    b"", b"\x00", b"\xff\xfe", b"\n", b"\r\n", b"\t", b" ", b"'", b'"', b"{", b"}", b"[", b"]",
    b":", b",", b"- ", b"#", b"&a", b"*a", b"<<", b"!!python/object:os.system", b"|", b">", b"%",
    b"@", b"`", b"~", b"null", b"true", b"NaN", b"Infinity", b"-0", b"1e999", b"0x1F", b"1:30",
    b"1_000", b"2026-07-20", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\\ud800", b"\xf0\x9f\x92\xa5",
    b"9" * 400, b"a" * 5000, b"[" * 3000, b'{"a":' * 3000, b"=" * 30, b"..", b"\x1b[31m",
)  # fmt: skip
_TEXTS: Final = (
    "", " ", "x", "x" * 300, "x" * 70_000, "\x00", "\x1b[31m", "\u202egnirts", "null", "0", "-1",
    "NaN", "60", "1e5s", "5 s", "10m", "99999999999d", "-5s", "2026-07-20T14:03:22.117Z",
    "2026-02-30T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z",
    "rdq.reserved", "../../etc/passwd", "Zm9v", "Zm9", "=", "*" * 60 + "b", "é" * 130, "a\n",
    "00000000000000000000000001", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
)  # fmt: skip
_PLAIN: Final[tuple[Any, ...]] = (
    *_TEXTS, "\ud800", None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0,
    1e300, float("nan"), float("inf"), [], {}, [[]], [None], {"": ""}, {"a": {"a": {"a": 1}}},
    {"code": 1}, [1, "a", None, {}],
)  # fmt: skip
_DIGITS: Final = (
    "0",
    "-1",
    "1",
    "1.5",
    "1E+125",
    "-1E-130",
    "99999999999999999999999999999999999999",
    "253402300799999",
    "7",
)
_BYTES: Final = (
    b"",
    b"\x00",
    b"null",
    b"[]",
    b"{",
    b'{"a":1}',
    b"[" * 3000,
    b"\xff" * 40,
    BOMB,
    BOMB[:1000],
    zlib.compress(b"x"),
)

Mutation = Callable[[random.Random, Any], Any]


def of_bytes(dice: random.Random, example: bytes) -> bytes:
    """A few cuts, repeats, flips and foreign pieces."""
    content = bytearray(example)
    for _ in range(dice.choice((0, 1, 1, 2, 3, 8))):
        at = dice.randint(0, len(content))
        upto = min(len(content), at + dice.choice((1, 1, 4, 16, 64)))
        match dice.randrange(5):
            case 0:
                content[at:at] = dice.choice(_TOKENS)
            case 1:
                del content[at:upto]
            case 2:
                content[at:at] = content[at:upto] * dice.choice((1, 2, 50))
            case 3:
                content[at:upto] = dice.choice(_TOKENS)
            case _ if at < len(content):
                content[at] = dice.randrange(256)
    return bytes(content)


def of_text(dice: random.Random, example: str) -> str:
    """The same for text."""
    return of_bytes(dice, example.encode("utf-8", "surrogatepass")).decode(
        "utf-8", dice.choice(("replace", "surrogateescape"))
    )


def of_data(dice: random.Random, example: Any) -> Any:
    """Plain data with parts replaced, left out, added, repeated or buried."""
    data = copy.deepcopy(example)
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        data = _changed(dice, data)
    return data


def _changed(dice: random.Random, data: Any) -> Any:
    if dice.random() < 0.3 or not isinstance(data, dict | list) or not data:
        return _another(dice, data)
    if isinstance(data, dict):
        name = dice.choice(list(data))
        if dice.random() < 0.1:
            del data[name]
        elif dice.random() < 0.1:
            data[dice.choice(_TEXTS)] = copy.deepcopy(dice.choice(_PLAIN))
        else:
            data[name] = _changed(dice, data[name])
        return data
    place = dice.randrange(len(data))
    data[place] = _changed(dice, data[place])
    return data


def _another(dice: random.Random, data: Any) -> Any:
    match dice.randrange(8):
        case 0:
            return _buried(data, dice.choice((2, 30, 3000)))
        case 1 if isinstance(data, list):
            return data * dice.choice((0, 2, 100))
        case 2 if isinstance(data, str):
            return of_text(dice, data)
        case _:
            return copy.deepcopy(dice.choice(_PLAIN))


def _buried(data: Any, depth: int) -> Any:
    for _ in range(depth):
        data = [data]
    return data


def of_item(dice: random.Random, example: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An item of DynamoDB's, its key apart, with values that DynamoDB would store too."""
    item = dict(example)
    names = [name for name in item if name not in ("task_id", "kind", "pk", "sk")]
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        name = dice.choice([*names, "unheard_of"])
        if dice.random() < 0.2:
            item.pop(name, None)
        else:
            item[name] = _value(dice, item.get(name, {"S": ""}))
    return item


def _value(dice: random.Random, old: Mapping[str, Any]) -> dict[str, Any]:
    match dice.randrange(8):
        case 0 | 1:
            return {"S": dice.choice(_TEXTS)}
        case 2 | 3:
            return {"N": dice.choice(_DIGITS)}
        case 4:
            return {"B": dice.choice(_BYTES)}
        case 5 if "S" in old:
            return {
                "S": of_text(dice, str(old["S"]))
                .encode("utf-8", "replace")
                .decode("utf-8", "replace")
            }
        case 5 if "B" in old:
            return {"B": of_bytes(dice, bytes(old["B"]))}
        case 6:
            return dice.choice(({"BOOL": True}, {"NULL": True}))
        case _:
            return dice.choice(({"M": {}}, {"L": []}, {"SS": ["a"]}, {"M": {"a": {"N": "1"}}}))


def any_of(examples: Sequence[Any], mutate: Mutation) -> Callable[[random.Random], Any]:
    """Inputs made of one example after the other."""
    return lambda dice: mutate(dice, dice.choice(examples))
