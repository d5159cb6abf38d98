"""Handlers under stable names: the contract between a stored task and the code that runs it.

A name is looked up, never imported from data. It is registered once, so the handler in effect never
depends on the order in which modules were loaded.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from rdq_core.domain import limits
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.units import parse_duration
from rdq_core.engine.ports import Handler
from rdq_core.engine.reconcile import Repair
from rdq_core.errors import ConfigInvalid, OutputInvalid
from rdq_core.handlers.decoding import decoder_for
from rdq_core.handlers.encoding import encode
from rdq_core.handlers.signature import read_signature
from rdq_core.handlers.typed import TaskDefinition, made_by_task

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=Callable[[Any], object])

_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "permanent": Outcome.PERMANENT_FAILURE,
    "retryable": Outcome.RETRYABLE_FAILURE,
}


class Registry:
    """The handlers of one host, and the queues that it serves.

    `queues` are those that the host may take tasks from. A task of such a queue whose handler is
    not here is dead at once (`rdq.Unroutable`), so name only queues whose handlers are all
    registered here.
    """

    def __init__(self, queues: Sequence[str] = ()) -> None:
        if isinstance(queues, str):  # which is a sequence too, of names that have one letter
            raise ConfigInvalid(
                "queues", "must be a list of names", hint=f"Registry(queues=[{queues!r}])"
            )
        self._queues = tuple(dict.fromkeys(limits.check_name("queue", queue) for queue in queues))
        self._handlers: dict[str, Handler] = {}
        self._classes: dict[type[BaseException], Outcome] = {}
        self._repairs: dict[str, Repair] = {}

    def handler(
        self, ref: str, *, version: str | None = None, outcome: OutcomeMapper | None = None
    ) -> Callable[[F], F]:
        """Register the decorated function under `ref`; see `register`. The function itself stays as
        it is.
        """
        given: object = ref
        if callable(given):
            name = getattr(given, "__name__", "handler").lower()
            raise ConfigInvalid(
                "handlers", "handler needs a name", hint=f'@registry.handler("{name}")'
            )

        def decorate(function: F) -> F:
            self.register(ref, function, version=version, outcome=outcome)
            return function

        return decorate

    def register(
        self,
        ref: str,
        function: Callable[..., Any],
        *,
        version: str | None = None,
        outcome: OutcomeMapper | None = None,
    ) -> None:
        """Register a handler: a function, plain or `async`, of the input and, if it likes, of a
        `TaskContext`.

        The input's annotation decides how payloads are decoded: `bytes`, `str`, JSON for `dict`,
        `list` or none, anything else validated by pydantic. What it returns becomes the task's
        result. `version` is compared with the task's pin; `outcome` reads the handler's end
        authoritatively. Raises ConfigInvalid for a ref that is taken, for a function of another
        arity and for a type that no JSON can become.
        """
        limits.check_name("handler_ref", ref)
        self._check_free(ref)
        if version is not None:
            limits.check_text("handler_version", version)
        path = f"handlers.{ref}"
        signature = read_signature(path, function)
        self._handlers[ref] = Handler(
            ref=ref,
            version=version,
            decode=decoder_for(path, signature.annotation),
            call=signature.call,
            encode=encode_result,
            is_async=signature.is_async,
            outcome=outcome,
        )

    def add(self, *definitions: TaskDefinition[Any, Any]) -> None:
        """Register typed tasks, each under its own name; this host then serves their queues as
        well.

        Raises ConfigInvalid for a name that is taken, and for what `rdq_core.task` has not made.
        """
        for definition in definitions:
            made = made_by_task(definition)
            self._check_free(made.name)
            self._handlers[made.name] = made.handler
            self._queues = tuple(dict.fromkeys((*self._queues, made.queue)))

    def reconciler(self, name: str, *, timeout: str | timedelta = "5s") -> Callable[[R], R]:
        """Run the decorated function before each claim cycle: a repair of the gap between a commit
        and its submit.

        It gets the host's `Rdq`. It must be idempotent, bounded, and safe while other hosts run it.
        One that raises, or is not done after `timeout`, is reported to `Rdq.on_error`; claims go
        on. Raises ConfigInvalid for a name that is taken, and for a timeout that is no duration.
        """
        limits.check_text("reconciler", name)
        limit = _limit(name, timeout)
        if name in self._repairs:
            raise ConfigInvalid(
                f"reconcilers.{name}",
                "is registered already",
                hint="give each one a name of its own",
            )

        def decorate(function: R) -> R:
            self._repairs[name] = Repair(name, function, limit)
            return function

        return decorate

    def classify(self, exception_class: type[BaseException], outcome: str | Outcome) -> None:
        """Decide what an exception class means, "permanent" or "retryable". Of several the nearest
        class wins.
        """
        decided = _OUTCOMES.get(str(outcome)) or next(
            (known for known in _OUTCOMES.values() if known == outcome), None
        )
        given: object = exception_class
        if not isinstance(given, type) or not issubclass(given, BaseException):
            raise ConfigInvalid("classify", f"{exception_class!r} is not an exception class")
        if decided is None:
            raise ConfigInvalid("classify", f"{outcome!r} is neither 'permanent' nor 'retryable'")
        self._classes[exception_class] = decided

    @property
    def queues(self) -> Sequence[str]:
        """The queues that this host may take tasks from."""
        return self._queues

    @property
    def refs(self) -> Sequence[str]:
        """The names of the registered handlers."""
        return tuple(self._handlers)

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """The exception classes whose outcome is decided in code."""
        return self._classes

    @property
    def repairs(self) -> Sequence[Repair]:
        """The reconcilers, in the order in which they were registered."""
        return tuple(self._repairs.values())

    def find(self, handler_ref: str) -> Handler | None:
        """The handler of this name; None when there is none."""
        return self._handlers.get(handler_ref)

    def _check_free(self, ref: str) -> None:
        if ref in self._handlers:
            raise ConfigInvalid(
                f"handlers.{ref}",
                "is registered already",
                hint="give each handler a name of its own",
            )


def _limit(name: str, timeout: str | timedelta) -> timedelta:
    try:
        return parse_duration(timeout)
    except ValueError as problem:
        raise ConfigInvalid(f"reconcilers.{name}.timeout", str(problem)) from None


def encode_result(value: object) -> Result:
    """What a handler returned as a storable result; None is no result. OutputInvalid for what can't
    be encoded.
    """
    if value is None:
        return NO_RESULT
    try:
        content, content_type = encode(value)
    except ValueError as problem:
        raise OutputInvalid(f"result: {problem}") from None
    return Result(content=content, content_type=content_type)
