"""Prints the tour: its lines, and on a terminal the current counts below them as a bar."""

import sys
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rdq_core.cli.output import escaped

_COLUMNS: Final = 80
_BAR: Final = 20


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of tasks in each state."""

    pending: int = 0
    in_flight: int = 0
    succeeded: int = 0
    dead: int = 0

    def __str__(self) -> str:
        return (
            f"pending {self.pending:>3}   in flight {self.in_flight:>3}   "
            f"succeeded {self.succeeded:>3}   dead {self.dead:>3}"
        )


class Narrator:
    """Prints on a console, which is quiet when the output is for programs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts = Counts()
        # Rich draws it on terminals only, and not on dumb ones.
        self.live_bar = Live(console=console, transient=True, get_renderable=self._bar)

    def say(self, line: str) -> None:
        """Print a line, cut to 80 columns."""
        text = cut(line, _COLUMNS)
        if self._console.is_terminal:
            self._console.print(Text(text), soft_wrap=True)
        elif not self._console.quiet:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def show(self, counts: Counts) -> None:
        """Update the bar."""
        self._counts = counts

    def _bar(self) -> Text:
        bar = Text("  ", no_wrap=True, overflow="ellipsis")
        counts = self._counts
        parts = {
            "green": counts.succeeded,
            "red": counts.dead,
            "yellow": counts.in_flight,
            "bright_black": counts.pending,
        }
        for colour, count in parts.items():
            bar.append("█" * round(_BAR * count / max(sum(parts.values()), 1)), style=colour)
        return bar.append(f"  {counts}".replace("   ", "  "))


def cut(text: str, columns: int) -> str:
    """Text without control characters, cut to this many columns."""
    clean = escaped(text)
    return clean if len(clean) <= columns else f"{clean[: columns - 1]}…"
