"""A handler's signature, read once: the type of its input, and whether it takes a context.

A function that rdq could not call is refused when it is registered or defined, not when its first
task runs.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_origin, get_type_hints

from rdq_core.engine.context import TaskContext
from rdq_core.errors import ConfigInvalid

_CONTEXT_NAMES: Final = ("ctx", "context")
_INPUT_AND_CONTEXT: Final = 2
_ONE_INPUT: Final = "a task has one input: put both values into a dict or a model"


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called. A missing annotation is None, and `-> None` is NoneType."""

    function: Callable[..., Any]
    annotation: Any
    takes_context: bool
    is_async: bool
    output: Any

    def call(self, value: Any, context: TaskContext) -> Any:
        """Call the handler. An async one returns a coroutine, which the caller awaits."""
        return self.function(value, context) if self.takes_context else self.function(value)


def read_signature(path: str, function: Callable[..., Any]) -> Signature:
    """The signature of a function of (input) or (input, ctx).

    Raises ConfigInvalid, naming `path`, for any other.
    """
    if not callable(function):
        raise ConfigInvalid(path, f"is of type {type(function).__name__}, which can't be called")
    signature = inspect.signature(function)
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in signature.parameters.values() if _is_required(parameter)]
    usable = positional[:_INPUT_AND_CONTEXT]
    if (
        not positional
        or len(required) > _INPUT_AND_CONTEXT
        or any(parameter not in usable for parameter in required)
    ):
        raise ConfigInvalid(path, f"must take (input) or (input, ctx), not {signature}")
    hints = _hints(path, function)
    return Signature(
        function,
        annotation=hints.get(positional[0].name),
        takes_context=len(positional) > 1 and _is_context(path, positional[1], hints),
        is_async=_is_async(function),
        output=hints.get("return"),
    )


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _is_context(path: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    if parameter.default is parameter.empty:
        kind = hints.get(parameter.name)
        kind = get_origin(kind) or kind
        if isinstance(kind, type) and kind.__module__ == "builtins" and kind is not object:
            raise ConfigInvalid(
                path,
                f"{parameter.name} is where the TaskContext goes, not a {kind.__name__}",
                hint=_ONE_INPUT,
            )
        return True
    return hints.get(parameter.name) is TaskContext or parameter.name in _CONTEXT_NAMES


def _hints(path: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    target = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError) as problem:
        raise ConfigInvalid(path, f"its annotations can't be read: {problem}") from None


def _is_async(function: Callable[..., Any]) -> bool:
    target = getattr(function, "func", function)
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)
