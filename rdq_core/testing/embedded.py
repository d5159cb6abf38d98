"""A whole rdq inside a test: the test moves time and injects failures, and nothing waits.

    with embedded({"payments.charge": {"retry": {"max_attempts": 3}}}) as local:
        receipt = local.rdq.submit("payments.charge", "charge-payment", {"amount": 5})
        local.drain(registry, horizon="7d")
        local.history(receipt).succeeded()

`embedded` stores tasks in moto's DynamoDB (`pip install rdq-core[testing]`); `in_memory` needs no
extra and is faster.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.config.document import Document, document_of, parse_document
from rdq_core.config.settings import Host
from rdq_core.engine.admission import NoLimit
from rdq_core.engine.events import Quiet
from rdq_core.engine.ports import EventSink
from rdq_core.engine.report import SweepReport
from rdq_core.engine.submit import Receipt
from rdq_core.handlers.aws_lambda import LambdaInvoker
from rdq_core.handlers.registry import Registry
from rdq_core.runtime.error_hub import ErrorHub
from rdq_core.runtime.log import log_error
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.system import SystemIds
from rdq_core.runtime.wiring import Parts, connect
from rdq_core.stores.memory import MemoryStore
from rdq_core.stores.memory_control import (
    MemoryAudit,
    MemoryCursorKey,
    MemoryJobs,
    MemoryQueues,
    MemoryReservations,
)
from rdq_core.testing.clock import FollowsClock, FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.draining import Drain
from rdq_core.testing.functions import LocalFunctions
from rdq_core.testing.history import History
from rdq_core.testing.rigged import Failure, Failures, Rigged
from rdq_core.testing.spans import Span, span_of

if TYPE_CHECKING:
    from rdq_core.stores.dynamodb.schema import Tables
    from rdq_core.testing.faults import FaultScript

Queues = Mapping[str, Mapping[str, Any]] | str | Path
"""Each queue as under `queues` of a configuration file, or the path of such a file."""

_numbers = count(1)
_REGION: Final = "eu-central-1"
_FAKE_CREDENTIAL: Final = "testing"


class Embedded:
    """A whole rdq in this process: `rdq` is the client, and `clock` moves time.

    `parts` gives access to the stores. `registry` has the handlers that `drain` runs unless it is
    given others. `functions` has the Lambda functions that queues may name as handlers; `sweep`
    calls them.
    """

    def __init__(
        self,
        parts: Parts,
        clock: FrozenClock,
        *,
        registry: Registry | None = None,
        tables: "_OnTables | None" = None,
    ) -> None:
        self.clock = clock
        self.parts: Parts = replace(
            parts,
            jitter=NoJitter(),
            idle=SkipsSleep(clock),
            busy=FollowsClock(clock),
            on_error=ErrorHub(log_error),
            invoker=self._invoker,
        )
        self.functions = LocalFunctions()
        self.registry = registry
        self.rdq = Rdq(parts=self.parts)
        self._failures = Failures()
        self._tables = tables

    def _invoker(self) -> LambdaInvoker:
        return LambdaInvoker(lambda _seconds: self.functions, on_error=self.parts.on_error)

    # -- configuration -----------------------------------------------------------------------------

    def configure(self, queue: str, declared: Mapping[str, Any]) -> None:
        """Declare a queue, or declare it again, as a configuration file does."""
        self.apply({queue: declared})

    def apply(self, queues: Queues) -> None:
        """Declare these queues, or declare them again.

        Raises ConfigInvalid as `rdq queue apply` would.
        """
        document = _document(queues)
        for queue, declared in document.queues.items():
            stored = self.parts.queues.stored(queue)
            revision = 0 if stored is None else stored.revision
            self.parts.queues.put_declared(
                queue, declared, document.defaults, expected_revision=revision
            )

    # -- time and work -----------------------------------------------------------------------------

    def drain(self, registry: Registry | None = None, *, horizon: Span = "0s") -> SweepReport:
        """Run the registry's work that is due now or becomes due within `horizon`.

        The clock jumps from one due time to the next. The default runs only what is due at this
        moment. Retries are included, so a long horizon runs tasks to their end. Raises
        NotRegistered when `fail_next` names a handler that is not among these.
        """
        until = self.clock.now() + span_of("horizon", horizon)
        handlers = registry or self.registry
        if handlers is None:
            raise RuntimeError(
                "there are no handlers to run: give drain a registry,"
                " or override the fixture rdq_registry"
            )
        self._failures.check_known({*handlers.refs, *(self.registry.refs if self.registry else ())})
        rigged = Rigged(handlers, self._failures)
        sweeper = build_sweeper(
            self.parts, rigged, serves=handlers.queues, worker="test:1", rdq=self.rdq
        )
        drain = Drain(sweeper, self.parts.store, self.parts.queues, self.clock, handlers.queues)
        return drain.run(until)

    def sweep(self, *, horizon: Span = "0s") -> SweepReport:
        """Do what `drain` does, as the sweeper function would.

        Serves all queues whose `handlers` are functions, and calls those in `functions`.
        """
        until = self.clock.now() + span_of("horizon", horizon)
        served = [
            queue
            for queue, settings in self.parts.queues.all().items()
            if settings.host is Host.SWEEPER
        ]
        sweeper = build_sweeper(
            self.parts, Registry(), serves=served, worker="test:1", host=Host.SWEEPER
        )
        drain = Drain(sweeper, self.parts.store, self.parts.queues, self.clock, served)
        return drain.run(until)

    def advance(self, span: Span) -> None:
        """Let time pass, as in `advance("2h")`. Runs nothing: call `drain`."""
        self.clock.advance(span_of("span", span))

    # -- failures ----------------------------------------------------------------------------------

    def fail_next(self, handler_ref: str, error: Failure, *, times: int = 1) -> None:
        """Let the next `times` attempts of a registry's handler raise `error`, without running it.

        Several failures take effect in the order they were added. The error goes through the
        handler's and the queue's rules, so `Abort`, `RetryAfter` and registered classes have their
        usual effect. Functions in `functions` are not affected.
        """
        self._failures.add(handler_ref, error, times)

    def check_failures_met(self) -> None:
        """Raises AssertionError if a failure from `fail_next` met no attempt.

        `local_rdq` and `embedded` call it at their end.
        """
        self._failures.check_met()

    def faults(self) -> "FaultScript":
        """A script of storage faults for a `with` statement: lost requests and answers, refusals,
        interleavings.

        RuntimeError in memory, where no request is sent.
        """
        from rdq_core.testing.faults import FaultScript

        return FaultScript(self.client)

    # -- looking -----------------------------------------------------------------------------------

    def history(self, task: Receipt | str) -> History:
        """The attempts of a task, by its receipt or id, for assertions step by step.

        Raises TaskNotFound.
        """
        return History(self.rdq.get(task if isinstance(task, str) else task.id))

    @property
    def client(self) -> Any:
        """The low-level client of the tables. RuntimeError in memory."""
        return self._on_tables.client

    @property
    def tables(self) -> "Tables":
        """The tables' names. RuntimeError in memory."""
        return self._on_tables.tables

    @property
    def _on_tables(self) -> "_OnTables":
        if self._tables is None:
            raise RuntimeError(
                "this rdq is in memory and has no tables or requests: use moto (fixture rdq_store)"
            )
        return self._tables


class _OnTables:
    def __init__(self, client: Any) -> None:
        """Create tables with unique names.

        A mock within a mock shares tables: a test suite may use one mock for all its tests.
        """
        from rdq_core.stores.dynamodb.schema import Tables, create_tables

        number = next(_numbers)
        self.client = client
        self.tables = Tables(
            *(f"rdq-{table}-{number}" for table in ("tasks", "dlq", "control", "audit"))
        )
        create_tables(client, self.tables)


def in_memory(
    queues: Queues, *, registry: Registry | None = None, events: EventSink | None = None
) -> Embedded:
    """An empty rdq in memory, without rate limits and `Rdq.prepare`.

    Its stores are the reference that all others are compared with.
    """
    clock, ids = FrozenClock(), SystemIds()
    parts = Parts(
        store=MemoryStore(clock=clock, ids=ids),
        queues=MemoryQueues(clock=clock),
        limiter=NoLimit(),
        reservations=MemoryReservations(),
        audit=MemoryAudit(),
        jobs=MemoryJobs(),
        cursor_key=MemoryCursorKey(secrets.token_bytes(32)),
        clock=clock,
        ids=ids,
        jitter=NoJitter(),
        idle=SkipsSleep(clock),
        busy=FollowsClock(clock),
        events=events or Quiet(),
        on_error=log_error,
    )
    local = Embedded(parts, clock, registry=registry)
    local.apply(queues)
    return local


def on_tables(
    client: Any,
    queues: Queues,
    *,
    registry: Registry | None = None,
    events: EventSink | None = None,
) -> Embedded:
    """An empty rdq on new tables, through a client of DynamoDB or of a test engine."""
    tables, clock = _OnTables(client), FrozenClock()
    parts = connect(
        client, tables.tables, clock=clock, events=events or Quiet(), sleeper=SkipsSleep(clock)
    )
    local = Embedded(parts, clock, registry=registry, tables=tables)
    local.apply(queues)
    return local


@contextmanager
def embedded(
    queues: Queues, *, registry: Registry | None = None, events: EventSink | None = None
) -> Iterator[Embedded]:
    """An empty rdq on moto's DynamoDB, with these queues. Its data is discarded at the end."""
    import boto3

    from rdq_core.testing.moto import atomic_moto

    with atomic_moto():
        client = boto3.client(
            "dynamodb",
            region_name=_REGION,
            aws_access_key_id=_FAKE_CREDENTIAL,
            aws_secret_access_key=_FAKE_CREDENTIAL,
        )
        local = on_tables(client, queues, registry=registry, events=events)
        yield local
        local.check_failures_met()


def _document(queues: Queues) -> Document:
    if isinstance(queues, str | Path):
        return parse_document(Path(queues).read_bytes())
    return document_of({"config_version": 1, "queues": {**queues}})
