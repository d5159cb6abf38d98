"""`rdq worker`: runs due tasks in this process, with the handlers of a module."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import parts
from rdq_core.cli.failures import DONE
from rdq_core.cli.output import Output, note
from rdq_core.config.settings import Host
from rdq_core.domain.units import parse_duration
from rdq_core.engine.ports import QueueSource
from rdq_core.engine.report import SweepReport
from rdq_core.errors import InputInvalid
from rdq_core.runtime.loading import load_registry
from rdq_core.runtime.log import LOGGER, LogSink, keep_requests_out_of_logs


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "worker")(worker)


def worker(
    output: Output,
    *,
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:REGISTRY]",
            help="Where the handlers are; searched in this folder too.",
        ),
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Serve this queue, not the registry's."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Exit when nothing is due within the horizon.")
    ] = False,
    drain_horizon: Annotated[str, typer.Option(help="How far ahead --drain looks.")] = "1h",
    grace: Annotated[str, typer.Option(help="Time to finish after SIGTERM.")] = "25s",
) -> None:
    """Run due tasks until stopped.

    Writes one JSON event per line to standard error and a report at the end. Serve only queues
    whose handlers are all in the module: a task without one is dead-lettered at once
    (rdq.Unroutable).
    """
    from rdq_core.client.rdq import Rdq
    from rdq_core.runtime.worker import Worker

    horizon, patience = _span("drain_horizon", drain_horizon), _span("grace", grace)
    registry = load_registry(module)
    installation = parts(LogSink())
    serves = tuple(queues or registry.queues)
    host = Worker(
        installation, registry, serves=serves, grace=patience, rdq=Rdq(parts=installation)
    )
    _check_queues(installation.queues, serves)
    _log_to_standard_error()
    if sys.stderr.isatty():
        note(f"serving {', '.join(serves)}; Ctrl-C stops")
    host.stop_on_signals()
    report = host.drain(horizon) if drain else host.run()
    output.show(_document(report), lambda: output.line(_sentence(asdict(report.total))))
    if host.has_stragglers:
        # The interpreter joins the threads of every pool at exit, and theirs may never end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(DONE)


def _span(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise InputInvalid(name, str(problem)) from None


def _check_queues(queues: QueueSource, serves: tuple[str, ...]) -> None:
    """Refuse a queue of another host: this module may lack its handlers, so its tasks would die."""
    for queue in serves:
        host = queues.settings(queue).host
        if host not in (Host.WORKER, Host.ANY):
            raise InputInvalid(
                "queue",
                f"{queue} is served by the {host} (dispatch.host)",
                hint="set dispatch.host to worker or any",
            )


def _log_to_standard_error() -> None:
    keep_requests_out_of_logs()
    logger, handler = logging.getLogger(LOGGER), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _document(report: SweepReport) -> dict[str, Any]:
    return {
        "total": asdict(report.total),
        "queues": {queue: asdict(numbers) for queue, numbers in report.queues.items()},
    }


def _sentence(numbers: Mapping[str, int]) -> str:
    counts = ", ".join(
        f"{name.replace('_', '-')} {number:,}" for name, number in numbers.items() if number
    )
    return f"done: {counts or 'nothing was due'}"
