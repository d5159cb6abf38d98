"""`lambda_handler`: functions that a sweeper sends tasks to, in an envelope or by handing them
over.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rdq_core import (
    Abort,
    Outcome,
    Rdq,
    Retry,
    RetryAfter,
    Status,
    TaskContext,
    lambda_handler,
    task,
)
from rdq_core.config.settings import Host
from rdq_core.domain.attempt import Code
from rdq_core.domain.envelope import to_envelope
from rdq_core.domain.fingerprint import fingerprint
from rdq_core.engine.report import QueueReport
from rdq_core.errors import InputInvalid, NotRegistered, StoreFailed
from rdq_core.stores.dynamodb.clock import ClockReading, StorageClock
from rdq_core.testing.contract.factories import a_task
from tests.engine.world import QUEUE, World, raises, until
from tests.support.functions import Context, function_of

SYNC = {"function": "charge-fn", "deliver": "envelope"}
ASYNC = {"function": "charge-fn", "invocation": "async"}
both_ways = pytest.mark.parametrize("target", [SYNC, ASYNC], ids=["sync", "async"])


class Shop:
    """A sweeper's world and a function that a sweep invokes, as its queue says: at once, or when
    Lambda gets to it.
    """

    def __init__(
        self, target: dict[str, Any], function: Any, *, seconds: float = 60, **config: Any
    ) -> None:
        self.world = World(handlers={"charge": target}, **config)
        self.world.host = Host.SWEEPER
        self.ended: list[int] = []
        self.entry = lambda_handler(
            self.world.rdq,
            "charge",
            function,
            machine=self.world.clock,
            end_process=self.ended.append,
        )
        self.is_async = target is ASYNC
        self.seconds = seconds
        if not self.is_async:
            self.world.functions.always("charge-fn", function_of(self.entry, seconds=seconds))

    def run(self, payload: object = b'{"order":17}', **options: Any) -> str:
        task_id = self.world.submit(payload, content_type="application/json", **options)
        self.sweep()
        return task_id

    def sweep(self) -> QueueReport:
        report = self.world.sweep()
        if self.is_async and report.handed_over:
            self.entry(self.world.functions.event(), Context(seconds=self.seconds))
        return report


@both_ways
def test_a_task_runs_and_its_result_is_kept(target: dict[str, Any]) -> None:
    seen: list[Any] = []

    def charge(order: dict[str, Any], ctx: TaskContext) -> dict[str, Any]:
        seen.append(
            (order, ctx.idempotency_key, ctx.attempt_no, ctx.task.headers["shop"], ctx.payload)
        )
        return {"receipt": 9}

    shop = Shop(target, charge)
    task_id = shop.run(headers={"shop": "3"})
    assert seen == [({"order": 17}, task_id, 1, "3", b'{"order":17}')]
    assert shop.world.rdq.result(task_id).output == {"receipt": 9}
    assert [attempt.attempt_no for attempt in shop.world.attempts(task_id)] == [1]
    assert shop.ended == []


@both_ways
@pytest.mark.parametrize(
    ("output", "expected"),
    [("text", "text"), (b"\x00\xff", b"\x00\xff"), (None, None), ([1], [1]), (0, 0)],
)
def test_results_of_every_kind_come_back(
    target: dict[str, Any], output: object, expected: object
) -> None:
    def charge(_order: Any) -> object:
        return output

    shop = Shop(target, charge)
    assert shop.world.rdq.result(shop.run()).output == expected


@both_ways
@pytest.mark.parametrize("payload", [b"\x00\xff", b'{"a": 1,\n "b":2}', b"", "grüße".encode()])
def test_a_payload_arrives_byte_for_byte(target: dict[str, Any], payload: bytes) -> None:
    seen: list[bytes] = []

    def charge(order: bytes) -> None:
        seen.append(order)

    Shop(target, charge).run(payload)
    assert seen == [payload]


@both_ways
def test_a_failure_is_judged_by_the_queues_rules_and_kept_with_type_and_stack(
    target: dict[str, Any],
) -> None:
    def charge(_order: Any) -> None:
        raise ConnectionError("bank down")

    shop = Shop(target, charge, classification={"permanent": ["Connection*"]})
    task_id = shop.run()
    (attempt,) = shop.world.attempts(task_id)
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error.type, attempt.error.message) == (
        Outcome.PERMANENT_FAILURE,
        "ConnectionError",
        "bank down",
    )
    assert 'raise ConnectionError("bank down")' in str(attempt.error.stack)


@both_ways
def test_signals_are_told_whole(target: dict[str, Any]) -> None:
    shop = Shop(target, raises(RetryAfter("90s", "bank_closed", "later", detail={"until": 9})))
    task_id = shop.run()
    error = shop.world.error(task_id)
    assert (error.code, error.message, error.detail) == ("bank_closed", "later", {"until": 9})
    assert shop.world.task(task_id).next_attempt_at == shop.world.clock.now() + timedelta(
        seconds=90
    )


@both_ways
def test_an_abort_ends_it_whatever_the_queues_rules_say(target: dict[str, Any]) -> None:
    shop = Shop(
        target, raises(Abort("card_lost", fingerprint="cards")), classification={"retryable": ["*"]}
    )
    task_id = shop.run()
    entry = shop.world.store.dead_entry(task_id)
    assert entry is not None
    error = shop.world.error(task_id)
    assert (error.code, entry.fingerprint) == (
        "card_lost",
        fingerprint("charge", error, override="cards"),
    )


@both_ways
def test_a_payload_that_does_not_fit_is_invalid_input(target: dict[str, Any]) -> None:
    def charge(_order: list[int]) -> None:
        raise AssertionError("never called")

    shop = Shop(target, charge)
    assert shop.world.error(shop.run()).code == Code.INPUT_INVALID


@both_ways
def test_a_typed_task_is_run_as_it_is_defined(target: dict[str, Any]) -> None:
    @task("charge", queue=QUEUE, retry=Retry(max_attempts=2))
    def charge(order: dict[str, int]) -> int:
        return order["order"]

    shop = Shop(target, charge)
    receipt = charge.submit(shop.world.rdq, {"order": 17})
    shop.sweep()
    assert charge.result(shop.world.rdq, receipt.id).output == 17


@both_ways
def test_a_handler_that_ignores_its_time_is_timed_out_and_its_process_ends(
    target: dict[str, Any],
) -> None:
    glance = threading.Event()

    def charge(_order: Any) -> None:
        shop.world.clock.advance("4s")
        while not shop.ended:
            glance.wait(0.002)
            shop.world.clock.advance("100ms")

    shop = Shop(target, charge, execution={"handler_timeout": "3s"})
    task_id = shop.run()
    assert shop.world.error(task_id).code == Code.TIMEOUT
    until(lambda: shop.ended == [1])


@both_ways
def test_a_handler_that_heeds_its_time_is_timed_out_and_the_process_lives(
    target: dict[str, Any],
) -> None:
    def charge(_order: Any, ctx: TaskContext) -> None:
        shop.world.clock.advance("4s")
        assert ctx.wait(20)

    shop = Shop(target, charge, execution={"handler_timeout": "3s"})
    assert shop.world.error(shop.run()).code == Code.TIMEOUT
    assert shop.ended == []


@both_ways
def test_the_time_of_the_invocation_ends_before_the_queues(target: dict[str, Any]) -> None:
    seen: list[timedelta] = []

    def charge(_order: Any, ctx: TaskContext) -> None:
        seen.append(ctx.remaining())

    Shop(target, charge, seconds=10).run()
    assert seen == [timedelta(seconds=8)]


@both_ways
def test_no_thread_of_ours_outlives_the_invocation(target: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    Shop(target, lambda _order: None).run()
    until(lambda: set(threading.enumerate()) <= before)


def test_what_the_functions_own_mapper_says_is_authoritative() -> None:
    def refuses(_value: object, _error: Exception | None) -> Outcome:
        return Outcome.PERMANENT_FAILURE

    world = World(handlers={"charge": SYNC}, classification={"retryable": ["*"]})
    world.host = Host.SWEEPER
    entry = lambda_handler(
        world.rdq, "charge", lambda _order: "no", outcome=refuses, machine=world.clock
    )
    world.functions.always("charge-fn", function_of(entry))
    task_id = world.submit(b"{}", content_type="application/json")
    world.sweep()
    assert world.attempts(task_id)[0].outcome is Outcome.PERMANENT_FAILURE


# -- handed over -----------------------------------------------------------------------------------


def test_a_function_that_is_handed_a_task_keeps_its_lease() -> None:
    def charge(_order: Any, ctx: TaskContext) -> None:
        for _ in range(10):
            ctx.heartbeat()
            shop.world.clock.advance("30s")

    shop = Shop(ASYNC, charge, execution={"lease": "60s", "handler_timeout": "20m"}, seconds=900)
    task_id = shop.run()
    assert shop.world.task(task_id).status is Status.SUCCEEDED


def test_of_two_deliveries_one_runs() -> None:
    runs: list[Any] = []
    shop = Shop(ASYNC, runs.append)
    shop.run()
    again = shop.entry(shop.world.functions.event(), Context())
    assert (runs, again) == ([{"order": 17}], {"rdq": {"adopted": False}})


def test_no_lease_is_counted_by_a_time_that_an_earlier_invocation_has_learnt() -> None:
    shop, asked = Shop(ASYNC, raises(Abort("closed"))), list[str]()
    shop.run()
    machine = shop.world.clock
    clock = StorageClock(machine, probe=lambda: asked.append("storage"))
    here = ClockReading(machine.now().timestamp(), machine.monotonic())
    clock.observe(machine.now(), sent=here, received=here)
    assert (clock.now(), asked) == (machine.now(), [])
    entry = lambda_handler(
        Rdq(parts=replace(shop.world.parts, clock=clock)), "charge", raises(Abort("closed"))
    )
    entry(shop.world.functions.event(), Context())
    assert asked[:1] == ["storage"]


def test_one_that_was_taken_back_is_not_run() -> None:
    runs: list[Any] = []
    shop = Shop(ASYNC, runs.append)
    shop.world.submit(b"{}", content_type="application/json")
    shop.world.sweep()
    shop.world.clock.advance("61s")
    shop.world.sweep()
    assert shop.entry(shop.world.functions.event(), Context()) == {"rdq": {"adopted": False}}
    assert runs == []


def test_storage_that_fails_at_the_adoption_is_raised_so_that_lambda_delivers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(ASYNC, lambda _order: None)
    shop.world.submit(b"{}", content_type="application/json")
    shop.world.sweep()

    def fails(*_args: object) -> None:
        raise StoreFailed("no answer", may_have_happened=True)

    monkeypatch.setattr(shop.world.store, "adopt", fails)
    with pytest.raises(StoreFailed):
        shop.entry(shop.world.functions.event(), Context())


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [{}, {"order": 17}, None, {"rdq": 5}, {"rdq": {"version": 1}}])
def test_an_event_that_is_not_rdqs_is_refused(event: object) -> None:
    with pytest.raises(InputInvalid, match="not rdq's"):
        lambda_handler(World().rdq, "charge", lambda _order: None)(event, Context())


def test_an_envelope_of_a_newer_version_is_refused() -> None:
    newer = {"rdq": {"version": 9, "task": to_envelope(a_task())}}
    with pytest.raises(InputInvalid, match="this rdq reads 1 to 1"):
        lambda_handler(World().rdq, "charge", lambda _order: None)(newer, Context())


@pytest.mark.parametrize(
    "told",
    [
        {"claim": 5},
        {"claim": {}},
        {"task": 5},
        {"task": {}, "version": 1},
        {"claim": {"token": "t"}},
    ],
)
def test_an_event_of_which_the_half_is_missing_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid):
        lambda_handler(World().rdq, "charge", lambda _order: None)({"rdq": told}, Context())


def test_a_typed_task_goes_by_its_own_name() -> None:
    @task("refund", queue=QUEUE)
    def refund(_order: dict[str, int]) -> None:
        """Nothing."""

    with pytest.raises(NotRegistered):
        lambda_handler(World().rdq, "charge", refund)


# -- a function that guards, and is its own raw handler --------------------------------------------


def test_a_guarded_function_that_is_its_own_handler_answers_success_only_for_done_work() -> None:
    world = World(handlers={"charge": {"function": "charge-fn"}}, retry={"max_attempts": 4})
    world.host = Host.SWEEPER
    bank: list[bool] = [False, False, False, True]
    function = _guarding(world.rdq, bank)
    world.functions.always("charge-fn", function_of(function))
    deferred = function({"id": "7"}, Context())["deferred"]
    for _ in range(3):
        world.sweep()
        world.clock.advance("10m")
    outcomes = [attempt.outcome for attempt in world.attempts(deferred)]
    assert outcomes == [Outcome.RETRYABLE_FAILURE] * 3 + [Outcome.SUCCESS]
    assert world.rdq.result(deferred).output == {"done": "paid"}
    assert bank == []


def _guarding(rdq: Rdq, bank: list[bool]) -> Callable[[Any, Any], dict[str, Any]]:
    @rdq.guard(QUEUE, "charge", on=ConnectionError, key=lambda order: order["id"])
    def charge(order: dict[str, Any]) -> str:
        if not bank.pop(0):
            raise ConnectionError("down")
        return "paid"

    def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
        answer = charge(event)
        return {"deferred": answer.id} if hasattr(answer, "id") else {"done": answer.value}

    return handler
