"""How far a bulk operation is, on standard error while a terminal is there to show it."""

import sys
from types import TracebackType
from typing import Any, Self

from rdq_core.cli.screen import Screen


class Bar:
    """A progress bar for people at a terminal; nothing for anybody else."""

    def __init__(self, screen: Screen) -> None:
        self._progress = _progress() if screen.is_for_people and sys.stderr.isatty() else None
        self._task: Any = (
            None if self._progress is None else self._progress.add_task("", total=None)
        )

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, done: int, total: int | None, doing: str) -> None:
        """So many of so many, and what is going on."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total, description=doing)


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
