"""Handlers under stable names: the contract between a stored task and the code that runs it.

A name is looked up, never imported from data. It is registered once, so the handler in effect never depends on the
order in which modules were loaded.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_type_hints

from rdq_core.domain import limits
from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler
from rdq_core.errors import ConfigInvalid, OutputInvalid
from rdq_core.handlers.decoding import decoder_for
from rdq_core.handlers.encoding import encode

F = TypeVar("F", bound=Callable[..., Any])

_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "permanent": Outcome.PERMANENT_FAILURE,
    "retryable": Outcome.RETRYABLE_FAILURE,
}
_CONTEXT_NAMES: Final = ("ctx", "context")


class Registry:
    """The handlers of one host, and the queues that it serves.

    `queues` are those that the host may take tasks from. A task of such a queue whose handler is not here is dead at
    once (`rdq.Unroutable`), so name only queues whose handlers are all registered here.
    """

    def __init__(self, queues: Sequence[str] = ()) -> None:
        self._queues = tuple(dict.fromkeys(limits.check_name("queue", queue) for queue in queues))
        self._handlers: dict[str, Handler] = {}
        self._classes: dict[type[BaseException], Outcome] = {}

    def handler(
        self, ref: str, *, version: str | None = None, outcome: OutcomeMapper | None = None
    ) -> Callable[[F], F]:
        """Register the decorated function under `ref`; see `register`. The function itself stays as it is."""

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
        """Register a handler: a function, plain or `async`, of the input and, if it likes, of a `TaskContext`.

        The input's annotation decides how payloads are decoded: `bytes`, `str`, JSON for `dict`, `list` or none,
        anything else validated by pydantic. What it returns becomes the task's result. `version` is compared with the
        task's pin; `outcome` reads the handler's end authoritatively. Raises ConfigInvalid for a ref that is taken
        and for a function of another arity.
        """
        limits.check_name("handler_ref", ref)
        if ref in self._handlers:
            raise ConfigInvalid(f"handlers.{ref}", "is registered already", hint="give each handler a name of its own")
        if version is not None:
            limits.check_text("handler_version", version)
        annotation, takes_context = _parameters(ref, function)
        self._handlers[ref] = Handler(
            ref=ref,
            version=version,
            decode=decoder_for(annotation),
            call=function if takes_context else _without_context(function),
            encode=encode_result,
            is_async=_is_async(function),
            outcome=outcome,
        )

    def classify(self, exception_class: type[BaseException], outcome: str | Outcome) -> None:
        """Decide what an exception class means, "permanent" or "retryable". Of several the nearest class wins."""
        decided = _OUTCOMES.get(str(outcome)) or next((known for known in _OUTCOMES.values() if known == outcome), None)
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

    def find(self, handler_ref: str) -> Handler | None:
        """The handler of this name; None when there is none."""
        return self._handlers.get(handler_ref)


def encode_result(value: object) -> Result:
    """What a handler returned as a storable result; None is no result. OutputInvalid for what can't be encoded."""
    if value is None:
        return NO_RESULT
    try:
        content, content_type = encode(value)
    except ValueError as problem:
        raise OutputInvalid(f"result: {problem}") from None
    return Result(content=content, content_type=content_type)


def _parameters(ref: str, function: Callable[..., Any]) -> tuple[Any, bool]:
    """The annotation of the input, and whether the context is wanted as well."""
    if not callable(function):
        raise ConfigInvalid(f"handlers.{ref}", f"a {type(function).__name__} can't be called")
    signature = inspect.signature(function)
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in signature.parameters.values() if _is_required(parameter)]
    if not positional or len(required) > 2 or any(parameter not in positional[:2] for parameter in required):  # noqa: PLR2004 - input, context
        raise ConfigInvalid(f"handlers.{ref}", f"must take (input) or (input, ctx), not {signature}")
    hints = _hints(ref, function)
    wants_context = len(positional) > 1 and _is_context(positional[1], hints)
    return hints.get(positional[0].name), wants_context


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _is_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    if parameter.default is parameter.empty:
        return True
    return hints.get(parameter.name) is TaskContext or parameter.name in _CONTEXT_NAMES


def _hints(ref: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    target = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target)
    except (NameError, TypeError, AttributeError) as problem:
        raise ConfigInvalid(f"handlers.{ref}", f"its annotations can't be read: {problem}") from None


def _is_async(function: Callable[..., Any]) -> bool:
    target = getattr(function, "func", function)
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _without_context(function: Callable[..., Any]) -> Callable[[Any, TaskContext], Any]:
    return lambda value, _context: function(value)
