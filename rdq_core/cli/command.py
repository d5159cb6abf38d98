"""Registers a function as a command: its output format, shared options and examples."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Annotated, Any

import typer

from rdq_core.cli.output import VIA, Format, Output

OutputFormat = Annotated[
    Format, typer.Option("--output", "-o", help="For people (table) or for programs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Same as -o json.")]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of local time.")]
Via = Annotated[
    str | None,
    typer.Option(
        "--via",
        metavar="FUNCTION",
        envvar=VIA,
        help="Ask this ops function, not DynamoDB.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_COMMON = (
    inspect.Parameter("format_", _KEYWORD, default=Format.TABLE, annotation=OutputFormat),
    inspect.Parameter("as_json", _KEYWORD, default=False, annotation=AsJson),
    inspect.Parameter("utc", _KEYWORD, default=False, annotation=Utc),
    inspect.Parameter("debug", _KEYWORD, default=False, annotation=Debug),
)
_VIA = inspect.Parameter("via", _KEYWORD, default=None, annotation=Via)


class PipeClosed(Exception):
    """The reader of standard output has closed the pipe.

    Not an OSError: typer would handle that itself.
    """


def examples(*lines: str, title: str = "Examples") -> str:
    """The end of a help text: one command per line, then two spaces and an optional comment."""
    return "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])


def command(
    app: typer.Typer, name: str, *, epilog: str | None = None, asks: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., int]]:
    """Register a function as a command.

    The function gets an `Output` first and returns the exit code; None means 0. A parameter whose
    type is a dataclass stands for one option per field: that is how commands share options. With
    `asks`, the command takes --via, because it sends operator requests.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        groups: dict[str, Callable[..., Any]] = {
            each.name: each.annotation for each in own if _is_group(each)
        }

        @functools.wraps(function)
        def run(
            *, format_: Format, as_json: bool, utc: bool, via: str | None = None, **arguments: Any
        ) -> int:
            del arguments["debug"]  # read from the command line by app.run
            for parameter, group in groups.items():
                fields = inspect.signature(group).parameters
                arguments[parameter] = group(**{field: arguments.pop(field) for field in fields})
            kind = Format.JSON if as_json and format_ is Format.TABLE else format_
            try:
                return function(Output(kind, utc=utc, via=via), **arguments) or 0
            except BrokenPipeError:
                raise PipeClosed from None

        options = [option for each in own for option in _options(each)]
        signature = inspect.Signature([*options, *([_VIA] if asks else []), *_COMMON])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        app.command(name, epilog=epilog)(run)
        return run

    return decorate


def _is_group(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The options that a parameter stands for: itself, or the fields of its dataclass."""
    if not _is_group(parameter):
        return [parameter.replace(kind=_KEYWORD)]
    return list(inspect.signature(parameter.annotation, eval_str=True).parameters.values())
