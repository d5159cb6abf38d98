"""The command line: all commands, and how a run ends."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from rdq_core.cli import (
    audit,
    demo,
    dlq,
    dlq_redrive,
    gc,
    init,
    job,
    local,
    queue,
    queue_apply,
    status,
    submit,
    task,
    worker,
)
from rdq_core.cli.command import Debug, PipeClosed, examples
from rdq_core.cli.failures import (
    BUG,
    DONE,
    INTERRUPTED,
    WRONG_USE,
    UsageError,
    exit_code,
    from_aws,
    print_bug,
    print_error,
    wants_json,
)
from rdq_core.cli.output import note, prepare_streams
from rdq_core.errors import RdqError

_EXAMPLES: Final = examples(
    "rdq demo                        a guided tour; needs no AWS account",
    "rdq local                       a local engine with tables, to try rdq on",
    "rdq queue apply queues.yaml     configure; then get, list, stats, ladder",
    "rdq submit -q billing -H charge --payload '{\"order\": 17}' --key order-17",
    "rdq worker payments             run the handlers of payments.py",
    "rdq task get -q billing --key order-17",
)
_ON_CALL: Final = examples(
    "rdq status                      start here",
    "rdq dlq groups billing          what tasks died of, one line per bug",
    "rdq dlq show 01M8PXSZ8GHTD2249VSD1FERQ2",
    "rdq queue pause billing --reason 'the bank is down'",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --dry-run",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --canary 10",
    "rdq job list                    running redrives; then watch, resume, cancel",
    "rdq audit list billing          who did what, and why",
    title="On call",
)

app: Final = typer.Typer(
    name="rdq",
    epilog=f"{_EXAMPLES}\n\n{_ON_CALL}",
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
queue_apply.register(queue.app)
dlq_redrive.register(dlq.app)
app.add_typer(queue.app, name="queue")
app.add_typer(task.app, name="task")
app.add_typer(dlq.app, name="dlq")
app.add_typer(job.app, name="job")
app.add_typer(audit.app, name="audit")


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors are printed on standard error."""
    prepare_streams()
    as_json, debug = wants_json(arguments), "--debug" in arguments
    try:
        code = app(args=list(arguments), prog_name="rdq", standalone_mode=False)
        sys.stdout.flush()
    except (PipeClosed, BrokenPipeError):
        return _end_without_reader()
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort as declined:
        return _end_declined(declined)
    except typer.TyperException as wrong:
        return _end_misused(wrong, as_json=as_json)
    # Every exception has to become an exit code.
    except Exception as error:  # noqa: BLE001
        return _end_failed(error, as_json=as_json, debug=debug)
    return code if isinstance(code, int) else DONE


def _end_declined(declined: typer.Abort) -> int:
    """End a command whose question was answered with no, or with Ctrl-C."""
    interrupted = isinstance(declined.__context__, KeyboardInterrupt)
    note("" if interrupted else "rdq: nothing was changed")  # Ctrl-C leaves the line unfinished
    return INTERRUPTED if interrupted else WRONG_USE


def _end_without_reader() -> int:
    """End silently when the reader of a pipe has left.

    Standard output becomes /dev/null, because the interpreter flushes it again at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _end_misused(wrong: typer.TyperException, *, as_json: bool) -> int:
    context: Any = getattr(wrong, "ctx", None)
    message = wrong.format_message()
    if message.startswith("Usage:"):  # a group without a command: typer's message is its help
        sys.stderr.write(f"{message}\n")
        return WRONG_USE
    hint = (
        f"rdq {context.command_path.partition(' ')[2]} --help".replace("  ", " ")
        if context is not None
        else None
    )
    print_error(UsageError(" ".join(message.split()).rstrip("."), hint=hint), as_json=as_json)
    return WRONG_USE


def _end_failed(error: Exception, *, as_json: bool, debug: bool) -> int:
    expected = error if isinstance(error, RdqError) else from_aws(error)
    if expected is None:
        print_bug(error, as_json=as_json, debug=debug)
        return BUG
    if debug:
        print_bug(error, as_json=False, debug=True)
    print_error(expected, as_json=as_json)
    return exit_code(expected)
