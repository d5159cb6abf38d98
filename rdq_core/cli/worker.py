"""`rdq worker`: the engine in one process, with the handlers of a module."""

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
from rdq_core.cli.screen import Screen, note
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
    screen: Screen,
    *,
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:REGISTRY]",
            help="Where the handlers are; the current folder is searched.",
        ),
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Serve this queue, instead of the registry's own list."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is due within the horizon.")
    ] = False,
    drain_horizon: Annotated[str, typer.Option(help="How far ahead --drain looks.")] = "1h",
    grace: Annotated[str, typer.Option(help="How long handlers may go on after SIGTERM.")] = "25s",
) -> None:
    """Run due work until told to stop.

    One JSON event a line on standard error, a report at the end. Serve only queues whose handlers
    are all in the module: a task of a served queue whose handler isn't there is dead-lettered at
    once (rdq.Unroutable).
    """
    from rdq_core.client.rdq import Rdq
    from rdq_core.runtime.worker import Worker

    horizon, patience = _span("drain_horizon", drain_horizon), _span("grace", grace)
    registry = load_registry(module)
    found = parts(LogSink())
    serves = tuple(queues or registry.queues)
    host = Worker(found, registry, serves=serves, grace=patience, rdq=Rdq(parts=found))
    _check_queues(found.queues, serves)
    _log_to_standard_error()
    if sys.stderr.isatty():
        note(f"serving {', '.join(serves)}; Ctrl-C stops")
    host.stop_on_signals()
    report = host.drain(horizon) if drain else host.run()
    screen.show(_document(report), lambda: screen.line(_sentence(asdict(report.total))))
    if host.has_stragglers:
        # Python would wait for every thread that such a handler has left in a pool.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(DONE)


def _span(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise InputInvalid(name, str(problem)) from None


def _check_queues(queues: QueueSource, serves: tuple[str, ...]) -> None:
    """Every queue is configured and meant for workers: the tasks of another host's queue would be
    unroutable here.
    """
    for queue in serves:
        host = queues.settings(queue).host
        if host not in (Host.WORKER, Host.ANY):
            raise InputInvalid(
                "queue",
                f"{queue} is served by the {host} (dispatch.host)",
                hint="dispatch.host: worker or any allows it",
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
    told = ", ".join(
        f"{name.replace('_', '-')} {number:,}" for name, number in numbers.items() if number
    )
    return f"done: {told or 'nothing was due'}"
