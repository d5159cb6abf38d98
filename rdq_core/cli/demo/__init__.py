"""`rdq demo`: a guided tour on a local engine.

The sample is what a user would write: handlers.py, queues.yaml and the payloads, and a receiver
that misbehaves (receiver.py, receiver.yaml). The rest narrates: tour runs the sample and prints
what it measures, workers starts the processes, check compares both sides at the end.
"""

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
from rdq_core.cli.local import local_engine, local_environment, require_engine, until_signalled
from rdq_core.cli.output import Output, note
from rdq_core.errors import InputInvalid

_SAMPLE: Final = Path(__file__).parent
_HANDLERS: Final = f"{__name__}.handlers"
_ENV_FILE: Final = Path(".rdq-demo", "env")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


def demo(
    output: Output,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep it running afterwards, to look around.")
    ] = False,
    deliveries: Annotated[
        str | None, typer.Option(hidden=True, help="Other webhooks, one per line.")
    ] = None,
) -> int | None:
    """Watch webhooks fail, be retried, die and be sent back.

    Runs on a local engine in this process; needs no AWS account.
    """
    require_engine("the demo")
    from rich.console import Console

    from rdq_core.cli.demo.narrator import Narrator
    from rdq_core.cli.demo.receiver import Receiver
    from rdq_core.cli.demo.tour import Tour
    from rdq_core.cli.demo.workers import running_workers

    file = _SAMPLE / "deliveries.jsonl" if deliveries is None else Path(deliveries)
    if not file.is_file():
        raise InputInvalid("deliveries", f"{file} is not a file")
    # End on SIGTERM as on Ctrl-C, so that the worker processes end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    narrator = Narrator(Console(highlight=False, quiet=not output.is_for_people))
    with ExitStack() as stack:
        with narrator.live_bar:
            narrator.say("rdq demo: two workers deliver webhooks to a receiver that misbehaves")
            engine = stack.enter_context(local_engine())
            receiver = stack.enter_context(Receiver(_SAMPLE / "receiver.yaml"))
            environment = {**engine, "WEBHOOK_RECEIVER": receiver.url}
            stack.enter_context(local_environment(environment))
            tour = Tour(output, narrator, receiver)
            tour.configure(_SAMPLE / "queues.yaml")
            workers = stack.enter_context(running_workers(2, _HANDLERS, tour.on_event))
            document = tour.run(file, workers)
            for line in _next_steps(keep=keep):
                narrator.say(line)
        output.show(document, lambda: None)
        if keep:
            _wait_until_interrupted(environment)
    return None if document["ok"] else BUG


def _next_steps(*, keep: bool) -> list[str]:
    if keep:
        return [
            f"running until Ctrl-C; in another terminal:  . {_ENV_FILE}",
            "next: rdq dlq groups webhooks",
        ]
    return [
        "next: rdq demo --keep      then, in another terminal:",
        f"      . {_ENV_FILE}; rdq dlq groups webhooks",
    ]


def _wait_until_interrupted(environment: Mapping[str, str]) -> None:
    """Keep everything running until Ctrl-C or SIGTERM, with a file that other terminals source."""
    _ENV_FILE.parent.mkdir(exist_ok=True)
    _ENV_FILE.write_text(
        exports(environment, commands=Path(sys.executable).parent), encoding="utf-8"
    )
    sys.stdout.flush()
    try:
        with until_signalled() as signalled:
            while not signalled.wait(1):
                pass
    finally:
        _ENV_FILE.unlink(missing_ok=True)
        note("stopping")


def exports(environment: Mapping[str, str], *, commands: Path) -> str:
    """Shell lines that set these variables, and put the folder of this rdq first in PATH."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(commands))}:"$PATH"', ""])
