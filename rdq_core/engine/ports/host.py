"""What a host provides: time, chance, names, handlers, and sinks for events and errors."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.task import Task
from rdq_core.engine.events import Event

if TYPE_CHECKING:
    from rdq_core.engine.context import TaskContext
    from rdq_core.engine.reconcile import Repair


class Clock(Protocol):
    """Time. The engine reads it here alone, so that tests can move it instead of waiting."""

    def now(self) -> datetime:
        """The present moment: aware, UTC, cut to milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that is never adjusted, for measuring durations."""
        ...


class Jitter(Protocol):
    """Chance, for spreading retries."""

    def fraction(self) -> float:
        """A number from -1 to 1."""
        ...


class Sleeper(Protocol):
    """Waiting that an event can end."""

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Wait until `wake` is set or the time is over; True when it was set."""
        ...


class IdSource(Protocol):
    """Fresh names that are unique and can't be guessed."""

    def task_id(self) -> str:
        """A new ULID."""
        ...

    def token(self) -> str:
        """A random token of at least 122 bits."""
        ...

    def nonce(self) -> str:
        """A random name of at least 64 bits, for records whose key no other writer may hit."""
        ...


class Invoker(Protocol):
    """Calls handler functions that live outside this process."""

    def handler(self, ref: str, settings: QueueSettings) -> "Handler":
        """The function that the queue's `handlers` name for `ref`, as a handler of this host.

        Its `call` raises Undelivered when nothing was run, and Reported for a failure that the
        function reports.
        """
        ...

    def hand_over(self, claim: Claim, settings: QueueSettings) -> None:
        """Hand the claim to the function that the queue names for the task's ref, which then adopts
        it.

        Raises Undelivered when it certainly won't.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Code registered under a stable name.

    `decode` turns the payload into the handler's input; it raises InputInvalid for one that can
    never fit. `call` runs the handler on it; what an `is_async` one returns is awaited on an event
    loop. `encode` turns what the handler returned into a storable result; it raises OutputInvalid
    if it can't. `definition` has the options of a typed task, as a layer of its queue's
    configuration; it is empty for a plain handler.
    """

    ref: str
    version: str | None
    decode: Callable[[Task], Any]
    call: "Callable[[Any, TaskContext], Any]"
    encode: Callable[[Any], Result]
    is_async: bool = False
    outcome: OutcomeMapper | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)


class HandlerSource(Protocol):
    """The handlers of this host, and the queues that it serves."""

    @property
    def queues(self) -> Sequence[str]:
        """The queues that this host may take tasks from."""
        ...

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """The exception classes that the application has registered an outcome for."""
        ...

    @property
    def repairs(self) -> "Sequence[Repair]":
        """The application's reconcilers, which this host runs before its claims."""
        ...

    def find(self, handler_ref: str) -> Handler | None:
        """The handler of this name, or None. Looked up, never imported."""
        ...


class EventSink(Protocol):
    """Where events go: logs, metrics, traces."""

    def emit(self, event: Event) -> None:
        """Record an event. Must not raise."""
        ...


class ErrorSink(Protocol):
    """Where errors go that have no task to be stored on."""

    def __call__(self, error: BaseException, *, where: str) -> None:
        """Report an error; `where` names what failed. Must not raise."""
        ...
