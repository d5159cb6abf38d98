"""Records each call of a store's verb, so that every write can be checked against its call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rdq_core.errors import CorruptItem, RdqError
from tests.simulation.process import Process
from tests.simulation.scheduler import Scheduler
from tests.simulation.timeline import Timeline


@dataclass(eq=False, slots=True)
class StoreCall:
    """One call of a verb. `committed` is the state row's change that it made, if it made one:
    before and after.
    """

    verb: str
    given: tuple[Any, ...]
    options: dict[str, Any]
    process: Process
    committed: list[tuple[Any, Any]] = field(default_factory=list)
    error: RdqError | None = None

    @property
    def task_id(self) -> str:
        """The task that it is about; empty where there is no one task."""
        first = self.given[0] if self.given else ""
        if isinstance(first, str):
            return first
        return str(
            getattr(first, "task_id", None) or getattr(getattr(first, "task", first), "id", "")
        )

    @property
    def token(self) -> str | None:
        """The token that it presents: the claim's that it settles, or the lapsed one's that it
        takes over.
        """
        return getattr(self.given[0], "token", None)

    @property
    def grant(self) -> Any:
        """The lease that it asks for."""
        return next(
            (
                each
                for each in self.given
                if hasattr(each, "lease_expires_at") and hasattr(each, "now")
            ),
            None,
        )

    def __str__(self) -> str:
        return f"{self.verb} task {self.task_id[-6:]}"


class Witness:
    """A task store whose calls are watched. `heard` is told what came of each: an answer, or an
    error.
    """

    def __init__(
        self,
        store: Any,
        process: Process,
        scheduler: Scheduler,
        timeline: Timeline,
        heard: Callable[[StoreCall, Any, RdqError | None], None],
    ) -> None:
        self._store = store
        self._process = process
        self._scheduler = scheduler
        self._timeline = timeline
        self._heard = heard

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *given, **options: self._call(StoreCall(verb, given, options, self._process))

    def _call(self, call: StoreCall) -> Any:
        strand = self._scheduler.current
        outer, strand.call = strand.call, call
        try:
            answer = getattr(self._store, call.verb)(*call.given, **call.options)
        except RdqError as error:
            if not isinstance(error, CorruptItem):
                self._timeline.note(self._process.name, f"{call}: {type(error).__name__}")
            self._heard(call, None, error)
            raise
        finally:
            strand.call = outer
        self._heard(call, answer, None)
        return answer
