"""Which of the workers' events are worth telling: the first of each kind, with the rule that
decided.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rdq_core.cli.demo.stage import WorkerProcess
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.engine.events import EventName
from rdq_core.engine.ports import TaskStore

_MOST: Final = 7
_ALWAYS_TOLD: Final = frozenset({"died", "lapsed"})
_ENDS: Final = frozenset(
    {
        EventName.SUCCEEDED,
        EventName.RETRY_SCHEDULED,
        EventName.DEAD_LETTERED,
        EventName.RELEASED,
        EventName.LOST,
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something notable. `rule` is what decided it, None where nothing had to be decided."""

    seconds: float
    text: str
    rule: str | None
    task_id: str | None

    def line(self) -> str:
        """The moment on one line of 80 columns."""
        # the column's width
        text = self.text if len(self.text) <= 50 else f"{self.text[:49]}…"  # noqa: PLR2004
        return f"  {self.seconds:>4.1f}s  {text:<50} {self.rule or ''}".rstrip()


class Moments:
    """Listens to workers, from any thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._kinds: set[tuple[object, ...]] = set()
        self._running: dict[str, int] = {}
        self._all: list[Moment] = []
        self.store: TaskStore | None = None

    @property
    def all(self) -> tuple[Moment, ...]:
        """The moments so far."""
        with self._lock:
            return tuple(self._all)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def hear(self, worker: WorkerProcess, event: Mapping[str, Any]) -> None:
        """An event of a worker's log."""
        name, task_id, attempt_no = (
            event.get("event"),
            str(event.get("task_id")),
            event.get("attempt_no") or 0,
        )
        if name == EventName.CLAIMED:
            with self._lock:
                was_running = task_id in self._running
                self._running[task_id] = worker.pid
            # A worker that dies may take the news of an outcome with it, so the record decides.
            if was_running and self._is_lapse(self._attempt(task_id, attempt_no - 1)):
                text = f"its lease lapsed: attempt {attempt_no} begins on worker {worker.number}"
                self._add(("lapsed",), text, "lease", task_id)
        elif name in _ENDS:
            with self._lock:
                self._running.pop(task_id, None)
            self._ended(event, str(name), task_id, attempt_no)

    def died(self, worker: WorkerProcess) -> None:
        """A worker has ended by itself, and another one was started."""
        with self._lock:
            held = sum(pid == worker.pid for pid in self._running.values())
        text = (
            f"worker {worker.number} died (exit {worker.exit_code}) with {held} running; restarted"
        )
        self._add(("died", worker.pid), text, None, None)

    def _ended(self, event: Mapping[str, Any], name: str, task_id: str, attempt_no: int) -> None:
        rule = event.get("rule")
        kind = (name, rule, event.get("code"), event.get("error_type"))
        if name == EventName.SUCCEEDED and attempt_no > 1:
            self._add(("late success",), f"delivered at attempt {attempt_no}", rule, task_id)
        elif name == EventName.RETRY_SCHEDULED and self._is_new(kind):
            wait = (event.get("delay_ms") or 0) / 1000
            self._add(
                kind, f"{self._why(task_id, attempt_no, 34)}, again in {wait:.1f} s", rule, task_id
            )
        elif name == EventName.DEAD_LETTERED and self._is_new(kind):
            how = "dead at once" if attempt_no == 1 else f"dead after {attempt_no}"
            self._add(kind, f"{self._why(task_id, attempt_no, 34)}, {how}", rule, task_id)

    def _is_lapse(self, attempt: Attempt | None) -> bool:
        return attempt is not None and attempt.outcome is Outcome.LEASE_EXPIRED

    def _is_new(self, kind: tuple[object, ...]) -> bool:
        with self._lock:
            return kind not in self._kinds

    def _why(self, task_id: str, attempt_no: int, most: int) -> str:
        """What the attempt's record says, cut to fit."""
        attempt = self._attempt(task_id, attempt_no)
        error = None if attempt is None else attempt.error
        text = "" if error is None else error.message or error.type
        return text if len(text) <= most else f"{text[: most - 1]}…"

    def _attempt(self, task_id: str, attempt_no: int) -> Attempt | None:
        task = self.store.get(task_id) if self.store else None
        return (
            None
            if task is None
            else next((each for each in task.attempts if each.attempt_no == attempt_no), None)
        )

    def _add(
        self, kind: tuple[object, ...], text: str, rule: str | None, task_id: str | None
    ) -> None:
        with self._lock:
            if kind in self._kinds:
                return
            self._kinds.add(kind)
            ordinary = sum(each[0] not in _ALWAYS_TOLD for each in self._kinds)
            moment = Moment(round(self.seconds, 2), text, rule, task_id)
            self._all.append(moment)
            is_told = kind[0] in _ALWAYS_TOLD or ordinary <= _MOST
        if is_told:
            self._tell(moment.line())
