"""What happened in a run, line by line, to find out why it failed."""

from typing import Final

from tests.simulation.scheduler import SECOND, Scheduler

_LINES: Final = 400


class Timeline:
    """The story of one run: when, who, what."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lines: list[tuple[int, str, str]] = []

    def note(self, who: str, what: str) -> None:
        """Add a line at the present moment."""
        self._lines.append((self._scheduler.now, who, what))

    def __len__(self) -> int:
        return len(self._lines)

    def told(self, about: str = "") -> str:
        """The story, or of a task that is named the lines that name it and those that name none."""
        chosen = (
            [line for line in self._lines if about in line[2] or "task " not in line[2]]
            if about
            else self._lines
        )
        cut = [f"  ... {len(chosen) - _LINES} lines before"] if len(chosen) > _LINES else []
        return "\n".join(
            cut + [f"{at / SECOND:12.3f}  {who:12} {what}" for at, who, what in chosen[-_LINES:]]
        )
