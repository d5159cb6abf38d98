"""How the demo is told: on a terminal with a live line of states, elsewhere in plain lines, or not
at all.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from rdq_core.cli.screen import escaped

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.text import Text

_COLUMNS: Final = 80
_BAR: Final = 24


@dataclass(frozen=True, slots=True)
class State:
    """How many tasks are where."""

    pending: int
    in_flight: int
    succeeded: int
    dead: int

    def __str__(self) -> str:
        return (
            f"pending {self.pending:>3}   in flight {self.in_flight:>3}   "
            f"succeeded {self.succeeded:>3}   dead {self.dead:>3}"
        )


class Teller(Protocol):
    """Whom the story is told to."""

    def say(self, line: str) -> None:
        """Add a line."""
        ...

    def state(self, state: State, *, mark: bool = False) -> None:
        """Show where the tasks are; `mark` is for a moment worth a line of its own."""
        ...


class Nobody:
    """For programs, which read the document at the end."""

    def say(self, line: str) -> None:
        """Drop the line."""

    def state(self, state: State, *, mark: bool = False) -> None:
        """Drop the state."""


class Lines:
    """Plain lines, one after the other."""

    def say(self, line: str) -> None:
        """Print the line."""
        sys.stdout.write(f"{_fitted(line)}\n")
        sys.stdout.flush()

    def state(self, state: State, *, mark: bool = False) -> None:
        """Print the state when it is worth it."""
        if mark:
            self.say(f"  {state}")


class Live:
    """The lines so far with the states above them, drawn again as they change.

    A terminal that is too small sees the newest lines, and all of them at the end.
    """

    def __init__(self, console: "Console") -> None:
        from rich.live import Live as RichLive

        self._lines: list[str] = []
        self._state = State(0, 0, 0, 0)
        self._is_over = False
        self._console = console
        self.display = RichLive(console=console, refresh_per_second=12, get_renderable=self._drawn)

    def say(self, line: str) -> None:
        """Add the line."""
        self._lines.append(_fitted(line))

    # it is always shown
    def state(self, state: State, *, mark: bool = False) -> None:  # noqa: ARG002
        """Move the bars."""
        self._state = state

    def end(self) -> None:
        """Nothing more will be said: the last drawing has everything."""
        self._is_over = True

    def _drawn(self) -> "Text":
        from rich.text import Text

        title, *rest = self._lines or [""]
        if not self._is_over:
            rest = rest[-max(self._console.size.height - 2, 1) :]
        overflow: OverflowMethod = "fold" if self._is_over else "ellipsis"
        text = Text(f"{title}\n", style="bold", no_wrap=not self._is_over, overflow=overflow)
        text.append_text(self._bar())
        return text.append("".join(f"\n{line}" for line in rest), style="not bold")

    def _bar(self) -> "Text":
        from rich.text import Text

        state, bar = self._state, Text("  ", style="not bold")
        total = state.pending + state.in_flight + state.succeeded + state.dead
        shares = (
            (state.succeeded, "green"),
            (state.dead, "red"),
            (state.in_flight, "yellow"),
            (state.pending, "bright_black"),
        )
        for count, colour in shares:
            bar.append("█" * round(_BAR * count / max(total, 1)), style=colour)
        return bar.append(f"  {state}".replace("   ", "  "))


@contextmanager
def telling(*, people: bool) -> Iterator[Teller]:
    """The teller for standard output."""
    if not people:
        yield Nobody()
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        yield Lines()
        return
    teller = Live(console)
    with teller.display:
        try:
            yield teller
        finally:
            teller.end()


def _fitted(line: str) -> str:
    clean = escaped(line)
    return clean if len(clean) <= _COLUMNS else f"{clean[: _COLUMNS - 1]}…"
