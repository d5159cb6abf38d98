"""The demo's lines on all kinds of terminals."""

import io
import sys

import pytest
from rich.console import Console

from rdq_core.cli.demo.narrator import Counts, Narrator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_narrator(terminal: Terminal, width: int, height: int) -> Narrator:
    return Narrator(Console(file=terminal, force_terminal=True, width=width, height=height))


def say(narrator: Narrator, lines: int) -> list[str]:
    said = [f"line {number}" for number in range(lines)]
    for line in said:
        narrator.say(line)
    return said


def test_a_low_terminal_shows_every_line_and_the_newest_last() -> None:
    narrator = a_narrator(terminal := Terminal(), 80, 8)
    with narrator.live_bar:
        narrator.show(Counts(pending=3))
        said = say(narrator, 20)
    printed = terminal.getvalue()
    places = [printed.index(f"{line}\n") for line in said]
    assert places == sorted(places)
    assert "pending  3" in printed


def test_a_narrow_terminal_has_every_word() -> None:
    narrator = a_narrator(terminal := Terminal(), 20, 8)
    sentence = "the receiver's people have repaired two endpoints"
    with narrator.live_bar:
        narrator.say(sentence)
    assert sentence.replace(" ", "") in "".join(terminal.getvalue().split())


@pytest.mark.parametrize(("kind", "draws"), [("xterm-256color", True), ("dumb", False)])
def test_a_terminal_that_cannot_draw_gets_plain_lines(
    kind: str, draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    narrator = Narrator(Console(highlight=False))
    with narrator.live_bar:
        narrator.say("the title")
    printed = terminal.getvalue()
    assert "the title\n" in printed
    assert ("\x1b" in printed) is draws


def test_a_program_gets_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator(Console(quiet=True))
    with narrator.live_bar:
        narrator.say("the title")
    assert capsys.readouterr().out == ""
