"""The command: find the sample, play the story, say how it ended."""

import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.failures import BUG
from rdq_core.cli.local import require_engine, until_signalled
from rdq_core.cli.screen import Screen, note
from rdq_core.errors import InputInvalid

_SAMPLE: Final = Path("samples", "webhooks")
_TITLE: Final = "rdq demo: webhooks for a receiver that misbehaves, by two worker processes"
_ENV_FILE: Final = Path(".rdq-demo", "env")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    screen: Screen,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running afterwards, to look around.")
    ] = False,
    deliveries: Annotated[
        str | None, typer.Option(hidden=True, help="Other webhooks, one a line.")
    ] = None,
) -> int | None:
    """See calls fail, be retried, die and be sent back.

    The whole story on a local engine: it needs no AWS account.
    """
    require_engine("the demo")
    from rdq_core.cli.demo.moments import Moments
    from rdq_core.cli.demo.stage import Stage
    from rdq_core.cli.demo.story import Story, document
    from rdq_core.cli.demo.teller import telling

    folder = _sample()
    chosen = folder / "deliveries.jsonl" if deliveries is None else Path(deliveries)
    if not chosen.is_file():
        raise InputInvalid("deliveries", f"{chosen} is no file")
    # As Ctrl-C does, so that a demo that is ended from outside ends its workers as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as running:
        with telling(people=screen.is_for_people) as teller:
            teller.say(_TITLE)
            moments = Moments(teller.say)
            stage = running.enter_context(Stage(folder, moments.hear))
            moments.store = stage.parts.store
            told = document(Story(stage, moments, teller).play(chosen), moments)
            for line in _next(keep=keep):
                teller.say(line)
        screen.show(told, lambda: None)
        if keep:
            _wait_until_interrupted(stage.environment)
    return None if told["ok"] else BUG


def _next(*, keep: bool) -> list[str]:
    if keep:
        return [
            f"it runs on until Ctrl-C; in another terminal:  . {_ENV_FILE}",
            "then:  rdq dlq groups webhooks",
        ]
    return [
        "next: rdq demo --keep      then, in another terminal:",
        f"      . {_ENV_FILE}; rdq dlq groups webhooks",
    ]


def _wait_until_interrupted(environment: Mapping[str, str]) -> None:
    """Leave everything running, with what other terminals need in a file, until Ctrl-C or SIGTERM."""
    _ENV_FILE.parent.mkdir(exist_ok=True)
    _ENV_FILE.write_text(
        exports(environment, commands=Path(sys.executable).parent), encoding="utf-8"
    )
    sys.stdout.flush()
    try:
        with until_signalled() as done:
            while not done.wait(1):
                pass
    finally:
        _ENV_FILE.unlink(missing_ok=True)
        note("stopping")


def exports(environment: Mapping[str, str], *, commands: Path) -> str:
    """Lines for a shell to take in, with the folder of this rdq's command before all others."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(commands))}:"$PATH"', ""])


def _sample() -> Path:
    """The sample's folder: beside the package in a checkout, or below the current folder."""
    import rdq_core

    beside = Path(rdq_core.__file__).resolve().parents[1] / _SAMPLE
    for folder in (beside, Path.cwd() / _SAMPLE):
        if (folder / "deliveries.jsonl").is_file():
            return folder
    raise InputInvalid(
        "demo", f"needs {_SAMPLE} of rdq's repository", hint="clone it, and run make demo there"
    )
