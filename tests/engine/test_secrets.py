"""Canaries in all private data, through every transition: none appears where it must not."""

import base64
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from aws_lambda_powertools.metrics import MetricUnit

from rdq_core import Abort, Registry, RetryAfter, TaskContext
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.auditor import Principal
from rdq_core.engine.events import Event, EventName
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import InputInvalid
from rdq_core.ops.audit_reader import AuditReader
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.runtime.kicking import KickFunction
from rdq_core.runtime.log import LOGGER, LogSink, keep_requests_out_of_logs
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.telemetry import MetricsSink
from rdq_core.testing.embedded import Embedded, embedded, in_memory
from tests.support.canary import (
    KINDS,
    MESSAGE,
    PAYLOAD,
    REFERENCE,
    RESULT,
    SOLD,
    VARIABLE,
    Outlets,
    found_in,
)
from tests.support.events import event
from tests.support.logs import AWS

QUEUE: Final = "billing"
BEATING: Final = "beating"
QUEUES: Final[dict[str, dict[str, Any]]] = {
    QUEUE: {"retry": {"max_attempts": 2, "initial_backoff": "1s"}, "execution": {"lease": "10s"}},
    BEATING: {"execution": {"lease": "6s", "handler_timeout": "10m"}},
}


class Told:
    """Logs and metrics together, and which events there were."""

    def __init__(self) -> None:
        self.metrics = MetricsSink("test")
        self.sinks = (LogSink(), self.metrics)
        self.names: set[EventName] = set()

    def emit(self, event: Event) -> None:
        self.names.add(event.name)
        for sink in self.sinks:
            sink.emit(event)


def a_registry() -> Registry:
    registry = Registry(queues=[QUEUE, BEATING])

    @registry.handler("succeeds")
    def succeeds(order: str) -> str:
        return order.replace(PAYLOAD, RESULT)

    @registry.handler("fails")
    def fails(order: str) -> str:
        card = order.replace(PAYLOAD, VARIABLE)  # in the frame that the traceback is of
        raise ConnectionError(MESSAGE, len(card))

    @registry.handler("gives-up")
    def gives_up(order: str) -> str:
        raise Abort("declined", MESSAGE, detail={"card": order})

    @registry.handler("waits")
    def waits(order: str) -> str:
        raise RetryAfter("5s", "later", MESSAGE)

    @registry.handler("exits")
    def exits(order: str) -> str:
        raise SystemExit(order)

    @registry.handler("misreads")
    def misreads(order: dict[str, int]) -> None:
        del order

    @registry.handler("returns-nonsense")
    def returns_nonsense(order: str) -> object:
        return {"card": {order}.pop, order: object()}

    return registry


@pytest.fixture(params=["memory", "moto"])
def told(request: pytest.FixtureRequest) -> Iterator[tuple[Embedded, Told]]:
    told, registry = Told(), a_registry()
    if request.param == "memory":
        yield in_memory(QUEUES, registry=registry, events=told), told
    else:
        with embedded(QUEUES, registry=registry, events=told) as local:
            yield local, told


def live(local: Embedded) -> None:
    """Every transition there is."""
    registry, rdq = local.registry, local.rdq
    assert registry is not None

    @registry.handler("cancels-itself")
    def cancels_itself(order: str, ctx: TaskContext) -> str:
        rdq.cancel(ctx.task.id)
        return order

    for ref in registry.refs:
        rdq.submit(QUEUE, ref, PAYLOAD, content_type="text/plain", **SOLD)
    unroutable = rdq.submit(QUEUE, "nobody-knows", PAYLOAD, **SOLD)
    local.drain(horizon="1h")
    editor = DeadLetterEditor(local.parts, local.parts.auditor(Principal("ann")))
    editor.redrive(QUEUE, [unroutable.id], Edit(handler_ref="succeeds", payload=PAYLOAD.encode()))
    local.drain(horizon="1h")
    editor.purge(QUEUE, [entry.task_id for entry in local.parts.store.dead(QUEUE, limit=50).items])
    waiting = rdq.submit(QUEUE, "succeeds", PAYLOAD, delay="1h", **SOLD)
    rdq.cancel(waiting.id)
    _lose_a_heartbeat(local, registry)
    _release(local, registry)
    _expire(local)
    rdq.forget(target=REFERENCE)


def _lose_a_heartbeat(local: Embedded, registry: Registry) -> None:
    @registry.handler("is-cancelled")
    def is_cancelled(order: str, ctx: TaskContext) -> str:
        local.rdq.cancel(ctx.task.id)
        local.advance("2s")  # the next beat is due
        ctx.wait(10)
        return order

    local.rdq.submit(BEATING, "is-cancelled", PAYLOAD, **SOLD)
    assert local.drain().total.lost == 1


def _release(local: Embedded, registry: Registry) -> None:
    stop = Stop()

    @registry.handler("is-stopped")
    def is_stopped(order: str, ctx: TaskContext) -> str:
        stop.request(deadline=local.clock.now())
        ctx.wait(60)
        ctx.check_lease()
        return order

    local.rdq.submit(QUEUE, "is-stopped", PAYLOAD, **SOLD)
    sweeper = build_sweeper(local.parts, registry, serves=[QUEUE], worker="test:1")
    sweeper.sweep(SweepLimits(), stop)


def _expire(local: Embedded) -> None:
    """A dead row is gone, as the stream tells it."""
    (record,) = event("dynamodb_stream")["Records"]
    row = record["dynamodb"].pop("NewImage")
    private = {
        "p": {"B": base64.b64encode(PAYLOAD.encode()).decode()},
        "m": {"S": json.dumps(SOLD)},
    }
    record["dynamodb"]["OldImage"] = {
        **row,
        "status": {"S": "DEAD"},
        "f": {"S": "declined"},
        **private,
    }
    record |= {
        "eventName": "REMOVE",
        "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
    }
    host = FunctionHost(parts=local.parts, metrics=MetricsSink("test"), start=lambda *_: None)
    KickFunction(host).clean_up({"Records": [record]})


def collect(local: Embedded, told: Told, outlets: Outlets) -> None:
    """What doesn't come out by itself: metrics at the end of an invocation, and the audit log when
    it is read.
    """
    told.metrics.flush()
    outlets.hear("audit", *AuditReader(local.parts).list(QUEUE, page_size=500)["items"])


def test_no_transition_emits_private_data(
    told: tuple[Embedded, Told], capsys: pytest.CaptureFixture[str]
) -> None:
    local, sink = told
    with Outlets(capsys) as outlets:
        live(local)
        collect(local, sink, outlets)
    assert sink.names == set(EventName)
    assert all(outlets.heard(outlet) for outlet in ("log", "metric", "audit"))
    assert outlets.leaks() == set()


# -- the canaries are seen -------------------------------------------------------------------------


def _in_the_audit_log(local: Embedded, _told: Told, secret: str) -> None:
    with local.parts.auditor(Principal("ann")).recorded(
        "dlq.redrive", QUEUE, detail={"note": secret}
    ):
        pass


def _in_an_error(_local: Embedded, _told: Told, secret: str) -> None:
    error = InputInvalid("payload", f"{secret!r} is wrong")
    logging.getLogger(f"{LOGGER}.errors").error("refused", exc_info=error)


PLANTED: Final[dict[str, tuple[str, Callable[[Embedded, Told, str], object]]]] = {
    "a log's message": (
        "log",
        lambda _local, _told, secret: logging.getLogger(LOGGER).debug("claimed %s", secret),
    ),
    "a log's field": (
        "log",
        lambda _local, _told, secret: logging.getLogger(LOGGER).debug(
            "claimed", extra={"body": secret}
        ),
    ),
    "an error's message in a log": ("log", _in_an_error),
    "a metric's dimension": (
        "metric",
        lambda _local, told, secret: told.metrics.measure(
            "lost", 1, MetricUnit.Count, queue=secret
        ),
    ),
    "an audit record": ("audit", _in_the_audit_log),
    "standard output": ("stdout", lambda _local, _told, secret: sys.stdout.write(f"{secret}\n")),
    "standard error": ("stderr", lambda _local, _told, secret: sys.stderr.write(secret)),
}


@pytest.mark.parametrize("place", PLANTED)
def test_a_secret_that_gets_out_is_seen(capsys: pytest.CaptureFixture[str], place: str) -> None:
    sink = Told()
    local = in_memory(QUEUES, registry=a_registry(), events=sink)
    outlet, leak = PLANTED[place]
    with Outlets(capsys) as outlets:
        leak(local, sink, PAYLOAD)
        collect(local, sink, outlets)
    assert outlets.leaks() == {(outlet, PAYLOAD)}


@pytest.mark.parametrize("secret", KINDS)
@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_secret_is_seen_in_any_disguise(secret: str, before: str) -> None:
    raw = f"{before}{secret}, paid".encode()
    disguises = (
        base64.b64encode(raw),
        base64.urlsafe_b64encode(raw),
        raw.hex().encode(),
        raw.hex().upper().encode(),
    )
    assert [found_in(f"told: {each.decode()}") for each in (raw, *disguises)] == [{secret}] * 5


def test_what_is_harmless_is_not_taken_for_a_secret() -> None:
    assert (
        found_in(
            base64.b64encode(b"a payload and a header, and nothing else").decode()
            + " canary-payload"
        )
        == set()
    )


@pytest.mark.parametrize(("level", "tells"), [(logging.NOTSET, False), (logging.DEBUG, True)])
def test_requests_are_logged_for_those_alone_who_ask_for_just_that(
    capsys: pytest.CaptureFixture[str], level: int, *, tells: bool
) -> None:
    loggers = [logging.getLogger(name) for name in AWS]
    before = [logger.level for logger in loggers]
    heard = logging.StreamHandler(sys.stdout)
    with Outlets(capsys) as outlets:
        for logger in loggers:
            logger.setLevel(level)
            logger.addHandler(heard)
        keep_requests_out_of_logs()
        with embedded(QUEUES) as local:
            local.rdq.submit(QUEUE, "succeeds", PAYLOAD, **SOLD)
        leaks = outlets.leaks()
    for logger, level_before in zip(loggers, before, strict=True):
        logger.setLevel(level_before)
        logger.removeHandler(heard)
    assert (("stdout", PAYLOAD) in leaks) is tells
