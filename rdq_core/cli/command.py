"""What every command has: a screen in the format asked for, and the options that choose it."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rdq_core.cli.screen import VIA, Format, Screen

Output = Annotated[
    Format,
    typer.Option("--output", "-o", help="For people (table), or for programs (json, jsonl)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as -o json.")]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of local time.")]
Via = Annotated[
    str | None,
    typer.Option(
        "--via", metavar="FUNCTION", envvar=VIA, help="Ask this ops function, not DynamoDB."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

_COMMON = (
    inspect.Parameter(
        "output", inspect.Parameter.KEYWORD_ONLY, default=Format.TABLE, annotation=Output
    ),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
    inspect.Parameter("utc", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Utc),
    inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug),
)

_VIA = inspect.Parameter("via", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Via)


class PipeClosed(Exception):
    """Nobody reads standard output any more. No OSError, because typer would take that for its own
    business.
    """


def command(
    app: typer.Typer, name: str, *, epilog: str | None = None, asks: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., int]]:
    """Register a function as a command.

    Its first argument is the `Screen`; what it returns is the exit code, None is 0. One that `asks`
    an operator request can also do so through the ops function.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int]:
        @functools.wraps(function)
        def run(
            *, output: Format, as_json: bool, utc: bool, via: str | None = None, **arguments: Any
        ) -> int:
            del arguments["debug"]  # that is for whoever catches what this raises
            screen = Screen(
                Format.JSON if as_json and output is Format.TABLE else output, utc=utc, via=via
            )
            try:
                return function(screen, **arguments) or 0
            except BrokenPipeError:
                raise PipeClosed from None

        signature = _signature(function, asks=asks)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        app.command(name, epilog=epilog)(run)
        return run

    return decorate


def _signature(function: Callable[..., Any], *, asks: bool) -> inspect.Signature:
    _screen, *own = inspect.signature(function, eval_str=True).parameters.values()
    mine = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    return inspect.Signature([*mine, *([_VIA] if asks else []), *_COMMON])
