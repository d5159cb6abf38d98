"""The commands put together, and how a run of one ends."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from rdq_core.cli import (
    audit,
    dlq,
    dlq_edits,
    gc,
    init,
    jobs,
    local,
    queue,
    queue_edits,
    queue_files,
    status,
    submit,
    task,
    worker,
)
from rdq_core.cli.command import Debug, PipeClosed
from rdq_core.cli.demo import demo
from rdq_core.cli.examples import examples
from rdq_core.cli.failures import (
    BUG,
    DONE,
    INTERRUPTED,
    WRONG_USE,
    Misuse,
    exit_code,
    of_aws,
    tell,
    tell_bug,
    wants_json,
)
from rdq_core.cli.screen import note
from rdq_core.cli.streams import prepare_streams
from rdq_core.errors import RdqError

_EXAMPLES: Final = examples(
    "rdq demo                        the whole story, without an AWS account",
    "rdq local                       a local engine with its tables, to try it on",
    "rdq queue apply queues.yaml     configure; then get, list, stats, ladder",
    "rdq submit -q billing -H charge --payload '{\"order\": 17}' --key order-17",
    "rdq worker payments             run the handlers of payments.py",
    "rdq task get -q billing --key order-17",
)
_AT_NIGHT: Final = examples(
    "rdq status                      where a night begins",
    "rdq dlq groups billing          what died, one line a bug",
    "rdq dlq show 01M8PXSZ8GHTD2249VSD1FERQ2",
    "rdq queue pause billing --reason 'the bank is down'",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --dry-run",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --canary 10",
    "rdq job list                    what is under way; watch, resume, cancel",
    "rdq audit list billing          who did what, and why",
    title="At night",
)

app: Final = typer.Typer(
    name="rdq",
    epilog=f"{_EXAMPLES}\n\n{_AT_NIGHT}",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        sys.stdout.write(f"rdq {version('rdq-core')}\n")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
]


@app.callback()
def _root(*, version: Version = False, debug: Debug = False) -> None:
    """Durable retries with a dead-letter queue, on DynamoDB and Lambda."""


for _module in (demo, local, init, status, submit, worker, gc):
    _module.register(app)
for _module in (queue_files, queue_edits):
    _module.register(queue.app)
dlq_edits.register(dlq.app)
app.add_typer(queue.app, name="queue")
app.add_typer(task.app, name="task")
app.add_typer(dlq.app, name="dlq")
app.add_typer(jobs.app, name="job")
app.add_typer(audit.app, name="audit")


def run(arguments: Sequence[str]) -> int:
    """Run a command line and answer its exit code. Whatever goes wrong is told in one line on
    standard error.
    """
    prepare_streams()
    as_json, debug = wants_json(arguments), "--debug" in arguments
    try:
        code = app(args=list(arguments), prog_name="rdq", standalone_mode=False)
        sys.stdout.flush()
    except (PipeClosed, BrokenPipeError):
        return _nobody_reads()
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort as declined:
        return _declined(declined)
    except typer.TyperException as wrong:
        return _misused(wrong, as_json=as_json)
    # the last line of defence turns all of them into an exit code
    except Exception as error:  # noqa: BLE001
        return _failed(error, as_json=as_json, debug=debug)
    return code if isinstance(code, int) else DONE


def _declined(declined: typer.Abort) -> int:
    """End a command whose question was answered by no, or by Ctrl-C, after which the line is still
    to be ended.
    """
    interrupted = isinstance(declined.__context__, KeyboardInterrupt)
    note("" if interrupted else "rdq: nothing was changed")
    return INTERRUPTED if interrupted else WRONG_USE


def _nobody_reads() -> int:
    """End quietly, as the reader of a pipe did; the interpreter's own flush at exit must not fail
    either.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _misused(wrong: typer.TyperException, *, as_json: bool) -> int:
    context: Any = getattr(wrong, "ctx", None)
    message = wrong.format_message()
    if message.startswith("Usage:"):  # a group without a command: its help is the answer
        sys.stderr.write(f"{message}\n")
        return WRONG_USE
    hint = (
        f"rdq {context.command_path.partition(' ')[2]} --help".replace("  ", " ")
        if context is not None
        else None
    )
    tell(Misuse(" ".join(message.split()).rstrip("."), hint=hint), as_json=as_json)
    return WRONG_USE


def _failed(error: Exception, *, as_json: bool, debug: bool) -> int:
    told = error if isinstance(error, RdqError) else of_aws(error)
    if told is None:
        tell_bug(error, as_json=as_json, debug=debug)
        return BUG
    if debug:
        tell_bug(error, as_json=False, debug=True)
    tell(told, as_json=as_json)
    return exit_code(told)
