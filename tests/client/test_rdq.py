"""`Rdq`: many submits at once, results, cancels, the current trace, and errors without a task."""

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rdq_core import NewTask, Receipt, Status, TaskContext
from rdq_core.client.rdq import Rdq
from rdq_core.engine.events import EventName
from rdq_core.errors import (
    InputInvalid,
    LeaseLost,
    OutputInvalid,
    QueueNotFound,
    RdqError,
    StoreFailed,
    TaskConflict,
    TaskNotFound,
)
from rdq_core.runtime.error_hub import ErrorHub
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.tracing import of_xray
from rdq_core.runtime.wiring import connect
from rdq_core.stores.memory import MemoryStore
from tests.engine.world import QUEUE, World
from tests.handlers.mail import Mail, send_email
from tests.support.engines import Engine
from tests.support.stores import TABLES

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"

# -- many at once ----------------------------------------------------------------------------------


def test_many_submits_are_answered_one_by_one_in_their_order() -> None:
    world, seen = World(), list[int]()
    tasks = [NewTask(QUEUE, "charge", number, key=f"order-{number}") for number in range(100)]
    answers = world.rdq.submit_many(tasks, on_progress=seen.append)
    ids = [answer.id for answer in answers if isinstance(answer, Receipt)]
    assert [world.task(task_id).payload for task_id in ids] == [
        str(number).encode() for number in range(100)
    ]
    assert seen == list(range(1, 101))


def test_typed_tasks_are_submitted_many_at_once_too() -> None:
    world = World()
    world.registry.add(send_email)
    mails = [send_email.new(Mail(to=f"reader {number}")) for number in range(20)]
    assert all(isinstance(answer, Receipt) for answer in world.rdq.submit_many(mails))
    assert world.store.counts(QUEUE).pending == 20


def test_a_refused_task_is_reported_and_stops_no_other() -> None:
    world = World()
    answers = world.rdq.submit_many(
        [
            {"queue": QUEUE, "handler_ref": "charge", "payload": {1}},
            {"queue": QUEUE, "handler_ref": "charge"},
            {"queue": QUEUE, "handler_ref": "charge", "payload": 1, "key": "7", "colour": "red"},
            {"queue": "unknown", "handler_ref": "charge", "payload": 1},
            {"queue": QUEUE, "handler_ref": "charge", "payload": 1, "key": "7"},
            {"queue": QUEUE, "handler_ref": "charge", "payload": 1, "key": "7"},
            5,  # type: ignore[list-item]
        ]
    )
    kinds = [
        InputInvalid,
        InputInvalid,
        InputInvalid,
        QueueNotFound,
        Receipt,
        Receipt,
        InputInvalid,
    ]
    assert [type(answer) for answer in answers] == kinds
    assert [answer.field for answer in answers if isinstance(answer, InputInvalid)] == [
        "payload",
        "payload",
        "colour",
        "task",
    ]


class Fails(MemoryStore):
    """A store that fails from the first write on, and counts them."""

    asked = 0

    def submit(self, *_args: Any, **_options: Any) -> Any:
        self.asked += 1
        raise StoreFailed("storage did not answer", may_have_happened=True)


def test_after_storage_has_failed_the_rest_is_not_tried() -> None:
    world = World()
    store = Fails(clock=world.clock, ids=world.ids)
    rdq = Rdq(parts=dataclasses.replace(world.parts, store=store))
    answers = rdq.submit_many(NewTask(QUEUE, "charge", number) for number in range(1000))
    assert (len(answers), {type(answer) for answer in answers}) == (1000, {StoreFailed})
    assert store.asked < 100
    last = answers[-1]
    assert isinstance(last, StoreFailed)
    assert not last.may_have_happened


# -- results and cancels ---------------------------------------------------------------------------


@pytest.mark.parametrize("output", [{"a": [1, None]}, 0, False, "", "grüße", b"", b"\x00\xff"])
def test_a_result_is_read_as_it_was_returned(output: object) -> None:
    world = World()
    world.handler(lambda _order: output)
    task_id = world.submit()
    world.sweep()
    result = world.rdq.result(task_id)
    assert (result.status, result.has_output, result.output) == (Status.SUCCEEDED, True, output)


def test_a_handler_that_returned_nothing_has_no_output() -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    world.sweep()
    assert (world.rdq.result(task_id).has_output, world.rdq.result(task_id).output) == (False, None)


def test_a_result_that_is_not_what_its_content_type_says_is_told() -> None:
    world = World()
    world.handler(lambda _order: 5)
    task_id = world.submit()
    world.sweep()
    kept = world.store._kept[task_id]
    broken = dataclasses.replace(
        kept.row, task=dataclasses.replace(kept.row.task, result=b"{secret")
    )
    world.store._kept[task_id] = dataclasses.replace(kept, row=broken)
    with pytest.raises(OutputInvalid) as refusal:
        world.rdq.result(task_id)
    assert "secret" not in str(refusal.value)


def test_a_cancel_stops_a_waiting_task_for_its_retention() -> None:
    world = World(limits={"task_ttl": "2h"})
    task_id = world.submit()
    assert world.rdq.cancel(task_id).status is Status.CANCELLED
    assert world.told.last(EventName.CANCELLED).task_id == task_id
    assert world.sweep().claimed == 0
    world.clock.advance("2h")
    with pytest.raises(TaskNotFound):
        world.rdq.get(task_id)


def test_a_cancel_fences_a_running_handler() -> None:
    world = World()

    def cancels_itself(_order: str, ctx: TaskContext) -> None:
        world.rdq.cancel(ctx.task.id)
        with pytest.raises(LeaseLost):
            ctx.heartbeat()

    world.handler(cancels_itself)
    task_id = world.submit()
    assert world.sweep().lost == 1
    assert world.task(task_id).status is Status.CANCELLED


def test_cancelling_what_has_ended_names_its_state() -> None:
    world = World()
    task_id = world.submit()
    world.rdq.cancel(task_id)
    with pytest.raises(TaskConflict, match="CANCELLED"):
        world.rdq.cancel(task_id)
    with pytest.raises(TaskNotFound):
        world.rdq.cancel("0" * 26)
    with pytest.raises(InputInvalid):
        world.rdq.cancel("x")


# -- traces ----------------------------------------------------------------------------------------


def header(world: World, **options: Any) -> str | None:
    return world.task(world.submit(**options)).headers.get("traceparent")


def a_span(monkeypatch: pytest.MonkeyPatch, *, is_valid: bool = True) -> None:
    """OpenTelemetry, loaded, with a current span."""
    span = SimpleNamespace(
        is_valid=is_valid, trace_id=int(TRACE, 16), span_id=int(PARENT, 16), trace_flags=1
    )
    current = SimpleNamespace(get_span_context=lambda: span)
    monkeypatch.setitem(
        sys.modules, "opentelemetry.trace", SimpleNamespace(get_current_span=lambda: current)
    )


def test_without_a_current_trace_there_is_no_header() -> None:
    assert header(World()) is None


def test_the_current_span_becomes_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    a_span(monkeypatch)
    assert header(World()) == GIVEN


def test_a_span_that_is_none_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    a_span(monkeypatch, is_valid=False)
    assert header(World()) is None


def test_a_header_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    a_span(monkeypatch)
    assert header(World(), headers={"traceparent": "mine"}) == "mine"


def test_what_a_handler_submits_belongs_to_the_trace_of_its_own_task() -> None:
    world = World()
    world.configure("mail", index_shards=1)
    world.registry.register("notify", lambda _mail: None)
    world.handler(lambda _order: world.rdq.submit("mail", "notify", "mail", key="7").id)
    world.submit(headers={"traceparent": GIVEN})
    world.sweep()
    assert world.rdq.get(queue="mail", key="7").headers["traceparent"] == GIVEN


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1;Lineage=1:a:0", GIVEN),
        (f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=0", f"00-{TRACE}-{PARENT}-00"),
        (f"Root=1-{TRACE[:8]}-{TRACE[8:]}", None),
        ("", None),
    ],
)
def test_an_x_ray_trace_is_carried_over(value: str, expected: str | None) -> None:
    assert of_xray({"_X_AMZN_TRACE_ID": value}) == expected


# -- errors without a task -------------------------------------------------------------------------


def test_errors_without_a_task_reach_every_listener_and_a_broken_listener_stops_nobody() -> None:
    world, heard = World(), list[BaseException]()

    def breaks(_error: BaseException) -> None:
        raise RuntimeError("sentry is down")

    world.rdq.on_error(breaks)
    world.rdq.on_error(heard.append)

    @world.registry.reconciler("pending-exports")
    def repair(_rdq: Rdq) -> None:
        raise RdqError("no")

    world.sweep()
    ((error),) = heard
    assert (type(error), error.__notes__) == (RdqError, ["rdq: reconciler pending-exports"])
    assert [type(error) for _, error in world.told.errors] == [RdqError, RuntimeError]


def test_on_aws_one_listener_hears_of_every_rdq_of_its_process(
    moto: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, heard = ErrorHub(World().told.on_error), list[BaseException]()
    monkeypatch.setattr("rdq_core.runtime.wiring.PROCESS_ERRORS", relay)
    Rdq(client=moto.dynamodb, tables=TABLES).on_error(heard.append)
    connect(moto.dynamodb, TABLES).on_error(RdqError("no"), where="a worker")
    assert len(heard) == 1


# -- reconcilers -----------------------------------------------------------------------------------


def test_a_reconciler_gets_the_hosts_rdq_before_the_first_claim() -> None:
    world = World()
    world.handler(lambda _order: None)

    @world.registry.reconciler("pending-exports", timeout="5s")
    def repair(rdq: Rdq) -> None:
        rdq.submit(QUEUE, "charge", "repaired", key="7")

    assert world.sweep().completed == 1
    assert world.rdq.get(queue=QUEUE, key="7").status is Status.SUCCEEDED


def test_a_host_without_an_rdq_refuses_reconcilers_instead_of_dropping_them() -> None:
    world = World()
    world.registry.reconciler("pending-exports")(lambda _rdq: None)
    with pytest.raises(InputInvalid, match="reconcilers"):
        build_sweeper(world.parts, world.registry, serves=[QUEUE], worker="host:1")


@pytest.mark.parametrize(("name", "timeout"), [("pending", "5s"), ("other", "5"), ("", "5s")])
def test_a_reconciler_is_named_once_and_has_a_time_limit(name: str, timeout: str) -> None:
    world = World()
    world.registry.reconciler("pending")(lambda _rdq: None)
    with pytest.raises(RdqError):
        world.registry.reconciler(name, timeout=timeout)
