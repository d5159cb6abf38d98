"""How the demo is told on terminals of all kinds."""

import io
import sys

import pytest
from rich.console import Console

from rdq_core.cli.demo.teller import Lines, Live, Teller, telling


def a_terminal(width: int, height: int) -> Live:
    return Live(Console(file=io.StringIO(), force_terminal=True, width=width, height=height))


def drawn(live: Live) -> list[str]:
    return str(live.display.get_renderable()).splitlines()


def tell(live: Teller, lines: int) -> list[str]:
    told = ["the title", *(f"line {number}" for number in range(1, lines))]
    for line in told:
        live.say(line)
    return told


def test_a_low_terminal_shows_the_newest_lines_and_all_of_them_at_the_end() -> None:
    live = a_terminal(80, 8)
    told = tell(live, 20)
    title, states, *newest = drawn(live)
    assert (title, newest) == ("the title", told[-6:])
    live.end()
    assert [line for line in drawn(live) if line != states] == told


def test_a_narrow_terminal_has_every_word_at_the_end() -> None:
    live = a_terminal(20, 8)
    sentence = "the receiver's people have mended two endpoints"
    with live.display:
        live.say("the title")
        live.say(sentence)
        live.end()
    assert isinstance(live.display.console.file, io.StringIO)
    last = live.display.console.file.getvalue().rpartition("the title")[2]
    assert sentence.replace(" ", "") in "".join(last.split())


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "teller"), [("xterm-256color", Live), ("dumb", Lines)])
def test_a_terminal_that_cannot_draw_gets_plain_lines(
    kind: str, teller: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stdout", Tty())
    with telling(people=True) as told:
        assert isinstance(told, teller)
