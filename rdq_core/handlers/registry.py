"""Handlers by name: the contract between a stored task and the code that runs it.

A name is looked up, never imported from data. It can be registered only once, so the handler in
effect never depends on the order in which modules were loaded.
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
from rdq_core.handlers.typed import TaskDefinition, check_definition

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=Callable[[Any], object])

_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "permanent": Outcome.PERMANENT_FAILURE,
    "retryable": Outcome.RETRYABLE_FAILURE,
}


class Registry:
    """The handlers of one host, and the queues that it serves.

    `queues` are the queues that the host takes tasks from. A task of these queues whose handler is
    not registered here is dead-lettered at once (`rdq.Unroutable`), so name only queues whose
    handlers are all registered.
    """

    def __init__(self, queues: Sequence[str] = ()) -> None:
        if isinstance(queues, str):  # a string is a sequence as well: of one-letter names
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
        """Register the decorated function under `ref`; see `register`. Returns the function
        unchanged.
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
        """Register a handler: a plain or `async` function of (input) or (input, ctx), where `ctx`
        is the `TaskContext`.

        The input's annotation decides how payloads are decoded: `bytes`, `str`, JSON for `dict`,
        `list` or no annotation, anything else validated by pydantic. The return value becomes the
        task's result. A task pinned to another `version` is not run here. `outcome` maps what the
        handler returned or raised to an outcome, and overrules every other rule.

        Raises ConfigInvalid for a ref that is taken, a function with other parameters, and a type
        that has no JSON form.
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
        """Register typed tasks, each under its own name, and take tasks from their queues as well.

        Raises ConfigInvalid for a name that is taken, and for anything not made by `rdq_core.task`.
        """
        for given in definitions:
            definition = check_definition(given)
            self._check_free(definition.name)
            self._handlers[definition.name] = definition.handler
            self._queues = tuple(dict.fromkeys((*self._queues, definition.queue)))

    def reconciler(self, name: str, *, timeout: str | timedelta = "5s") -> Callable[[R], R]:
        """Call the decorated function with the host's `Rdq` before each claim cycle: to submit what
        the application has committed and not yet submitted.

        It must be idempotent, bounded, and safe while other hosts run it. When it raises, or is not
        done after `timeout`, the error goes to the listeners of `Rdq.on_error` and the claims
        continue. Raises ConfigInvalid for a name that is taken, and an invalid timeout.
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
        """Classify an exception class and its subclasses as "permanent" or "retryable". The class
        nearest to the exception's own decides.
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
        """The queues that this host takes tasks from."""
        return self._queues

    @property
    def refs(self) -> Sequence[str]:
        """The names of the registered handlers."""
        return tuple(self._handlers)

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """The classified exception classes."""
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
    """A handler's return value as a result; None is no result. Raises OutputInvalid for a value
    that can't be encoded.
    """
    if value is None:
        return NO_RESULT
    try:
        content, content_type = encode(value)
    except ValueError as problem:
        raise OutputInvalid(f"result: {problem}") from None
    return Result(content=content, content_type=content_type)
