"""DynamoDB's expressions, as far as rdq uses them: parsed once, then held against items.

The invariant: what isn't understood completely is never guessed at. UnknownSyntax is no answer of
DynamoDB's, so nothing handles it: code that uses more of the language has to add it to this module
first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

Item = Mapping[str, Mapping[str, Any]]
Names = Mapping[str, str]
Values = Mapping[str, Mapping[str, Any]]
Test = Callable[[Item, Names, Values], bool]

_TOKEN: Final = re.compile(r"\s*(?:([#:]\w+)|([A-Za-z_]\w*)|(<>|<=|>=|[=<>(),]))")
_KINDS: Final = frozenset({"S", "B", "BOOL"})


class UnknownSyntax(Exception):
    """The double can't carry out this request: it knows only what rdq is known to send."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition, filter or key condition, and the aliases and placeholders that it
    uses.
    """

    test: Test
    used: frozenset[str]


@dataclass(frozen=True, slots=True)
class Update:
    """A parsed update: aliases to placeholders, and aliases that lose their value."""

    sets: tuple[tuple[str, str], ...]
    removes: tuple[str, ...]
    used: frozenset[str]


def plain(value: Mapping[str, Any] | None) -> tuple[str, Any] | None:
    """A value as Python compares it: its type, and its content. Of what rdq doesn't store, only
    equals are equal.
    """
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "N":
        return kind, Decimal(content)
    return kind, content if kind in _KINDS else repr(content)


@lru_cache(maxsize=1024)
def condition(text: str) -> Condition:
    """A condition. Raises UnknownSyntax."""
    parser = _Parser(text)
    test = parser.either()
    parser.end()
    return Condition(test, frozenset(parser.used))


@lru_cache(maxsize=1024)
def update(text: str) -> Update:
    """An update of SET and REMOVE. Raises UnknownSyntax."""
    parser = _Parser(text)
    sets: list[tuple[str, str]] = []
    removes: list[str] = []
    if parser.takes("SET"):
        sets.append(parser.assignment())
        while parser.takes(","):
            sets.append(parser.assignment())
    if parser.takes("REMOVE"):
        removes.extend(parser.aliases())
    parser.end()
    return Update(tuple(sets), tuple(removes), frozenset(parser.used))


@lru_cache(maxsize=256)
def projection(text: str) -> tuple[str, ...]:
    """The aliases of a projection. Raises UnknownSyntax."""
    parser = _Parser(text)
    found = parser.aliases()
    parser.end()
    return tuple(found)


class _Parser:
    """One expression, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self.used: set[str] = set()

    # -- conditions --------------------------------------------------------------------------------

    def either(self) -> Test:
        """Parts joined by OR."""
        parts = [self._both()]
        while self.takes("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda *given: any(part(*given) for part in parts)

    def _both(self) -> Test:
        parts = [self._single()]
        while self.takes("AND"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda *given: all(part(*given) for part in parts)

    def _single(self) -> Test:
        if self.takes("("):
            inner = self.either()
            self._need(")")
            return inner
        token = self._peek()
        return self._function(token) if token in _FUNCTIONS else self._comparison()

    def _function(self, name: str) -> Test:
        self._need(name)
        self._need("(")
        alias = self._word("#")
        placeholder = self._second() if _FUNCTIONS[name] else ""
        self._need(")")
        match name:
            case "attribute_exists":
                return lambda item, names, _: names[alias] in item
            case "attribute_not_exists":
                return lambda item, names, _: names[alias] not in item
            case "attribute_type":
                return lambda item, names, values: (
                    values[placeholder]["S"] in item.get(names[alias], ())
                )
            case _:
                return lambda item, names, values: _begins(
                    item.get(names[alias]), values[placeholder]
                )

    def _second(self) -> str:
        self._need(",")
        return self._word(":")

    def _comparison(self) -> Test:
        alias = self._word("#")
        if self.takes("BETWEEN"):
            low = self._word(":")
            self._need("AND")
            high = self._word(":")
            return lambda item, names, values: _between(
                item.get(names[alias]), values[low], values[high]
            )
        if self.takes("IN"):
            return self._one_of(alias)
        operator = self._next()
        if operator not in _OPERATORS:
            raise self._unknown(operator)
        compare, placeholder = _OPERATORS[operator], self._word(":")
        return lambda item, names, values: compare(
            plain(item.get(names[alias])), plain(values[placeholder])
        )

    def _one_of(self, alias: str) -> Test:
        self._need("(")
        choices = [self._word(":")]
        while self.takes(","):
            choices.append(self._word(":"))
        self._need(")")
        return lambda item, names, values: (
            plain(item.get(names[alias])) in [plain(values[choice]) for choice in choices]
        )

    # -- updates -----------------------------------------------------------------------------------

    def assignment(self) -> tuple[str, str]:
        """One assignment of SET."""
        alias = self._word("#")
        self._need("=")
        return alias, self._word(":")

    def aliases(self) -> list[str]:
        """Aliases between commas."""
        found = [self._word("#")]
        while self.takes(","):
            found.append(self._word("#"))
        return found

    # -- tokens ------------------------------------------------------------------------------------

    def takes(self, token: str) -> bool:
        """Whether the next token is this one, which is then read."""
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def end(self) -> None:
        """Nothing may follow."""
        if self._at < len(self._tokens):
            raise self._unknown(self._peek())

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _need(self, token: str) -> None:
        if not self.takes(token):
            raise self._unknown(self._peek())

    def _word(self, mark: str) -> str:
        token = self._next()
        if not token.startswith(mark):
            raise self._unknown(token)
        self.used.add(token)
        return token

    def _unknown(self, token: str) -> UnknownSyntax:
        return UnknownSyntax(f"{token or 'an early end'!r} in {self._text!r}")


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    place, stripped = 0, text.rstrip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise UnknownSyntax(f"{stripped[place:]!r} in {text!r}")
        found.append(match.group(match.lastindex or 0))
        place = match.end()
    return found


_FUNCTIONS: Final = {
    "attribute_exists": False,
    "attribute_not_exists": False,
    "attribute_type": True,
    "begins_with": True,
}
"""Those that are known, and whether they take a second operand."""

_Plain = tuple[str, Any] | None


def _same_kind(one: _Plain, other: _Plain) -> bool:
    return one is not None and other is not None and one[0] == other[0]


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda one, other: one == other,
    "<>": lambda one, other: (
        one != other
    ),  # also of an attribute that isn't there, as DynamoDB has it
    "<": lambda one, other: _same_kind(one, other) and one < other,
    "<=": lambda one, other: _same_kind(one, other) and one <= other,
    ">": lambda one, other: _same_kind(one, other) and one > other,
    ">=": lambda one, other: _same_kind(one, other) and one >= other,
}


def _between(
    value: Mapping[str, Any] | None, low: Mapping[str, Any], high: Mapping[str, Any]
) -> bool:
    found, least, most = plain(value), plain(low), plain(high)
    return _same_kind(found, least) and _same_kind(found, most) and bool(least <= found <= most)  # type: ignore[operator]


def _begins(value: Mapping[str, Any] | None, prefix: Mapping[str, Any]) -> bool:
    return value is not None and "S" in value and str(value["S"]).startswith(prefix["S"])
