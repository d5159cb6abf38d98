"""A canary in whatever may be private, through every transition: found nowhere it may not be."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel

from rdq_core import Abort, Registry, RetryAfter, TaskContext
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.audit import Principal
from rdq_core.engine.events import Event, EventName
from rdq_core.engine.stopping import Stop
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import RdqError
from rdq_core.runtime.log import LogSink
from rdq_core.runtime.telemetry import MetricsSink
from rdq_core.testing.embedded import Embedded, embedded, in_memory

CANARY: Final = "canary-7f3a9c1d"
"""In payloads, header values, results, handlers' variables and what they say, targets and requesters."""
QUEUE: Final = "billing"
QUEUES: Final = {QUEUE: {"retry": {"max_attempts": 2, "initial_backoff": "1s"}, "execution": {"lease": "10s"}}}
SOLD: Final[dict[str, Any]] = {"headers": {"customer": CANARY}, "target": CANARY, "requested_by": CANARY}
OUT_OF_REACH: Final = {EventName.DEAD_EXPIRED, EventName.HEARTBEAT_LOST}
"""What takes a heartbeat in real time, or the stream; they have the same fields as the others."""


class Order(BaseModel):
    card: int


class Told:
    """Logs and metrics together, and which events there were."""

    def __init__(self) -> None:
        self.sinks = (LogSink(), MetricsSink("test"))
        self.names: set[EventName] = set()

    def emit(self, event: Event) -> None:
        self.names.add(event.name)
        for sink in self.sinks:
            sink.emit(event)


def a_registry() -> Registry:
    registry = Registry(queues=[QUEUE])

    @registry.handler("succeeds")
    def succeeds(order: str) -> str:
        return order

    @registry.handler("fails")
    def fails(order: str) -> str:
        card = order + order  # a variable of the frame that the traceback is of
        raise ConnectionError(order, card)

    @registry.handler("gives-up")
    def gives_up(order: str) -> str:
        raise Abort("declined", order, detail={"card": order})

    @registry.handler("waits")
    def waits(order: str) -> str:
        raise RetryAfter("5s", "later", order)

    @registry.handler("exits")
    def exits(order: str) -> str:
        raise SystemExit(order)

    @registry.handler("misreads")
    def misreads(order: Order) -> None:
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
        rdq.submit(QUEUE, ref, CANARY, content_type="text/plain", **SOLD)
    unroutable = rdq.submit(QUEUE, "nobody-knows", CANARY, **SOLD)
    local.drain(horizon="1h")
    editor = local.parts.dead_letter_editor(Principal("ann"))
    editor.redrive(QUEUE, [unroutable.id], Edit(handler_ref="succeeds", payload=CANARY.encode()))
    local.drain(horizon="1h")
    editor.purge(QUEUE, [entry.task_id for entry in local.parts.store.dead(QUEUE, limit=50).items])
    waiting = rdq.submit(QUEUE, "succeeds", CANARY, delay="1h", **SOLD)
    rdq.cancel(waiting.id)
    _release(local, registry)
    rdq.forget(target=CANARY)


def _release(local: Embedded, registry: Registry) -> None:
    stop = Stop()

    @registry.handler("is-stopped")
    def is_stopped(order: str, ctx: TaskContext) -> str:
        stop.request(deadline=local.clock.now())
        ctx.wait(60)
        ctx.check_lease()
        return order

    local.rdq.submit(QUEUE, "is-stopped", CANARY, **SOLD)
    sweeper = local.parts.sweeper(registry, serves=[QUEUE], worker="test:1")
    sweeper.sweep(SweepLimits(), stop)


def everything_told(local: Embedded, told: Told, capsys: Any, caplog: Any) -> str:
    """Logs at every level, metrics, what was printed, and the audit log."""
    told.sinks[1].flush()
    out, err = capsys.readouterr()
    records = local.parts.audit_desk().list(QUEUE, page_size=500)["items"]
    assert records
    logged = [record.getMessage() + str(record.args) for record in caplog.records if record.name.startswith("rdq")]
    assert logged
    assert "EMF" in out or "_aws" in out
    return "\n".join([out, err, json.dumps(records, default=str), *logged])


def assert_no_canary(told: str) -> None:
    assert CANARY not in told
    assert base64.b64encode(CANARY.encode()).decode()[:-4] not in told


def test_no_transition_tells_what_is_private(
    told: tuple[Embedded, Told], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    local, sink = told
    with caplog.at_level(logging.DEBUG, logger="rdq"):
        live(local)
    assert set(EventName) - sink.names <= OUT_OF_REACH
    assert_no_canary(everything_told(local, sink, capsys, caplog))


LARGE: Final = CANARY * 200_000
REFUSED: Final[dict[str, Callable[[Embedded], object]]] = {
    "a payload that is too large": lambda local: local.rdq.submit(QUEUE, "succeeds", LARGE),
    "a payload that is no data": lambda local: local.rdq.submit(QUEUE, "succeeds", {"card": {CANARY}.pop}),
    "a number that is none": lambda local: local.rdq.submit(QUEUE, "succeeds", {"card": [CANARY, float("nan")]}),
    "a header that is no text": lambda local: local.rdq.submit(QUEUE, "succeeds", 1, headers={"card": [CANARY]}),  # type: ignore[dict-item]
    "a header that is too large": lambda local: local.rdq.submit(QUEUE, "succeeds", 1, headers={"card": LARGE}),
    "a reserved header": lambda local: local.rdq.submit(QUEUE, "succeeds", 1, headers={"rdq.card": CANARY}),
    "a target that is too long": lambda local: local.rdq.submit(QUEUE, "succeeds", 1, target=CANARY * 50),
    "a queue that isn't there": lambda local: local.rdq.submit("biling", "succeeds", CANARY, **SOLD),
    "an id that is elsewhere": lambda local: _twice(local),  # noqa: PLW0108 - it is defined below
    "a delay that is none": lambda local: local.rdq.submit(QUEUE, "succeeds", CANARY, delay="soon", **SOLD),
}


def _twice(local: Embedded) -> None:
    local.configure("email", {})
    receipt = local.rdq.submit(QUEUE, "succeeds", CANARY, **SOLD)
    local.rdq.submit("email", "succeeds", CANARY, id=receipt.id, **SOLD)


@pytest.mark.parametrize("refused", REFUSED)
def test_no_refusal_repeats_what_is_private(refused: str) -> None:
    local = in_memory(QUEUES)
    with pytest.raises(RdqError) as error:
        REFUSED[refused](local)
    assert_no_canary(f"{error.value} {error.value!r} {error.value.hint} {error.value.__cause__!r}")


def test_what_a_handler_could_not_read_or_return_is_not_in_its_history_nor_are_its_variables() -> None:
    local = in_memory(QUEUES, registry=a_registry())
    ids = [
        local.rdq.submit(QUEUE, ref, f'{{"card": "{CANARY}"}}', **SOLD).id
        for ref in ("misreads", "returns-nonsense", "exits")
    ]
    local.drain(horizon="1h")
    for task_id in ids:
        attempts = local.rdq.get(task_id).attempts
        assert attempts
        assert_no_canary(str(attempts))
