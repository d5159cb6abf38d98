import asyncio
import threading
from datetime import timedelta

import pytest

from rdq_core import Abort, Outcome, Retryable, RetryAfter, Status, TaskContext
from rdq_core.engine.events import EventName
from rdq_core.engine.stopping import Stop
from rdq_core.errors import InputInvalid, LeaseLost
from tests.engine.world import QUEUE, World, raises, until

RETRY = {"max_attempts": 3, "initial_backoff": "10s", "jitter": 0.0}


def test_a_call_that_succeeds_keeps_what_it_returned() -> None:
    world = World()

    def charge(order: dict[str, int]) -> dict[str, int]:
        return {"charged": order["id"]}

    world.handler(charge)
    task_id = world.submit({"id": 7})
    assert world.sweep().completed == 1
    task = world.task(task_id)
    assert (task.status, task.result, task.result_content_type) == (
        Status.SUCCEEDED,
        b'{"charged":7}',
        "application/json",
    )
    assert [(attempt.attempt_no, attempt.outcome) for attempt in task.attempts] == [
        (1, Outcome.SUCCESS)
    ]


def test_a_failed_call_waits_for_its_backoff_and_is_tried_again() -> None:
    world = World(retry=RETRY)
    failures = [ConnectionError("down"), ConnectionError("down")]
    world.handler(lambda _order: raises(failures.pop())("") if failures else None)
    task_id = world.submit()
    assert world.sweep().rescheduled == 1
    assert world.sweep().claimed == 0
    world.clock.advance("10s")
    assert world.sweep().rescheduled == 1
    world.clock.advance("19s")
    assert world.sweep().claimed == 0
    world.clock.advance("1s")
    assert world.sweep().completed == 1
    assert [attempt.attempt_no for attempt in world.attempts(task_id)] == [1, 2, 3]


def test_the_last_failure_of_the_budget_is_the_reason_of_death() -> None:
    world = World(retry={**RETRY, "max_attempts": 2})
    world.handler(raises(ConnectionError("down")))
    task_id = world.submit()
    world.sweep()
    world.clock.advance("1h")
    assert world.sweep().dead_lettered == 1
    task = world.task(task_id)
    assert task.failure is not None
    assert (task.status, task.failure.code, task.failure.type, task.failure.message) == (
        Status.DEAD,
        "task_failed",
        "ConnectionError",
        "down",
    )
    assert task.attempts[-1].outcome is Outcome.RETRYABLE_FAILURE


def test_the_stack_on_record_begins_where_the_application_s_own_code_does() -> None:
    world = World()
    world.handler(raises(ConnectionError("down")))
    task_id = world.submit()
    world.sweep()
    assert "rdq_core" not in world.error(task_id).stack
    assert "in handler" in world.error(task_id).stack


def test_abort_goes_to_the_dlq_at_once_with_its_code_and_the_rule_that_decided() -> None:
    world = World()
    world.handler(raises(Abort("card_declined", "no money", detail={"bank": "x"})))
    task_id = world.submit()
    assert world.sweep().dead_lettered == 1
    error = world.error(task_id)
    assert (error.code, error.message, error.detail) == ("card_declined", "no money", {"bank": "x"})
    assert world.told.last(EventName.DEAD_LETTERED).rule == "signal:Abort"


def test_a_signal_is_found_through_raise_from_and_keeps_the_type_of_its_origin() -> None:
    def handler(_order: str) -> None:
        raise Abort("bad_card", "not a card") from ValueError("4111 1111")

    world = World()
    world.handler(handler)
    task_id = world.submit()
    world.sweep()
    assert (world.error(task_id).type, world.error(task_id).code) == ("ValueError", "bad_card")


def test_retry_after_is_a_floor_that_max_backoff_does_not_shorten() -> None:
    world = World(retry={**RETRY, "max_backoff": "10s"})
    world.handler(raises(RetryAfter("2m", "slow_down")))
    task_id = world.submit()
    start = world.clock.now()
    world.sweep()
    assert world.task(task_id).next_attempt_at == start + timedelta(minutes=2)


def test_retryable_is_tried_again_even_where_a_glob_calls_it_permanent() -> None:
    world = World(classification={"permanent": ["*"]})
    world.handler(raises(Retryable("busy")))
    world.submit()
    assert world.sweep().rescheduled == 1


def test_classes_registered_in_code_come_before_the_queues_globs() -> None:
    world = World(classification={"permanent": ["*Error"]})
    world.registry.classify(OSError, "retryable")
    world.handler(raises(ConnectionRefusedError("no")))
    world.submit()
    assert world.sweep().rescheduled == 1
    assert world.told.last(EventName.RETRY_SCHEDULED).rule == "class:OSError"


def test_a_mapper_is_authoritative_even_over_a_return() -> None:
    world = World()
    world.handler(
        lambda _order: {"status": "FAILED"},
        outcome=lambda value, _error: (
            Outcome.PERMANENT_FAILURE if value["status"] == "FAILED" else None
        ),
    )
    world.submit()
    assert world.sweep().dead_lettered == 1


def test_a_task_without_a_handler_is_dead_at_once_and_never_loops() -> None:
    world = World()
    task_id = world.submit(ref="misspelt")
    assert world.sweep().dead_lettered == 1
    assert (world.error(task_id).type, world.error(task_id).code) == (
        "rdq.Unroutable",
        "task_not_registered",
    )
    assert world.attempts(task_id)[0].outcome is Outcome.PERMANENT_FAILURE


@pytest.mark.parametrize(
    ("policy", "pin", "status"),
    [
        ("dead-letter", "v2", Status.DEAD),
        ("dead-letter", "v3", Status.SUCCEEDED),
        ("dead-letter", None, Status.SUCCEEDED),
        ("run-latest", "v2", Status.SUCCEEDED),
    ],
)
def test_a_pin_to_another_version_is_decided_by_the_queue(
    policy: str, pin: str | None, status: Status
) -> None:
    world = World(version_mismatch=policy)
    world.handler(lambda _order: None, version="v3")
    task_id = world.submit(handler_version=pin)
    world.sweep()
    assert world.task(task_id).status is status
    if status is Status.DEAD:
        assert world.error(task_id).type == "rdq.HandlerVersionMismatch"


def test_a_payload_that_does_not_fit_is_dead_at_the_first_attempt_and_is_not_quoted() -> None:
    world = World()

    def handler(order: dict) -> None:  # type: ignore[type-arg]
        raise AssertionError(order)

    world.handler(handler)
    task_id = world.submit(b"4111-secret")
    world.sweep()
    assert world.error(task_id).code == "task_input_invalid"
    assert "secret" not in str(world.error(task_id))


def test_a_budget_that_was_lowered_below_what_is_spent_ends_the_task_without_another_attempt() -> (
    None
):
    world = World(retry=RETRY)
    world.handler(raises(ConnectionError()))
    task_id = world.submit()
    world.sweep()
    world.configure(index_shards=1, retry={"max_attempts": 1})
    world.clock.advance("1h")
    world.sweep()
    task = world.task(task_id)
    assert task.failure is not None
    assert (task.status, task.failure.code, len(task.attempts)) == (
        Status.DEAD,
        "task_attempts_exhausted",
        1,
    )


@pytest.mark.parametrize("crash", [SystemExit(3), KeyboardInterrupt("secret"), GeneratorExit()])
def test_a_base_exception_is_contained_and_its_value_is_not_kept(crash: BaseException) -> None:
    world = World()
    world.handler(raises(crash))
    task_id = world.submit()
    assert world.sweep().rescheduled == 1
    assert (world.error(task_id).code, world.error(task_id).type) == (
        "task_handler_panicked",
        "rdq.HandlerCrashed",
    )
    assert "secret" not in str(world.error(task_id))


def test_a_result_over_the_limit_is_a_permanent_failure() -> None:
    world = World()
    world.handler(lambda _order: b"x" * (1024 * 1024 + 1))
    task_id = world.submit()
    world.sweep()
    assert (world.task(task_id).status, world.error(task_id).code) == (
        Status.DEAD,
        "task_output_too_large",
    )


def test_a_result_that_the_store_cannot_hold_is_a_permanent_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.handler(lambda _order: b"x" * 500_000)

    def without_a_bucket(*_arguments: object, **_options: object) -> None:
        raise InputInvalid("result", "is 500000 bytes long; 262144 are the limit")

    monkeypatch.setattr(world.store, "complete", without_a_bucket)
    task_id = world.submit()
    assert world.sweep().dead_lettered == 1
    assert (world.error(task_id).code, world.told.last(EventName.DEAD_LETTERED).rule) == (
        "task_output_too_large",
        "output_too_large",
    )


def test_a_result_that_is_no_data_is_a_permanent_failure() -> None:
    world = World()
    world.handler(lambda _order: {object()})
    task_id = world.submit()
    world.sweep()
    assert (world.task(task_id).status, world.error(task_id).code) == (
        Status.DEAD,
        "task_output_invalid",
    )


def test_async_handlers_run_and_their_failures_count() -> None:
    world = World()

    async def handler(order: str) -> str:
        await asyncio.sleep(0)
        if order == "bad":
            raise Abort("bad_order")
        return order.upper()

    world.handler(handler)
    good, bad = world.submit("good"), world.submit("bad")
    world.sweep()
    assert world.task(good).result == b"GOOD"
    assert world.task(bad).status is Status.DEAD


def test_a_timed_out_handler_is_fenced_and_its_task_retried() -> None:
    world = World(execution={"lease": "60s", "handler_timeout": "20s"})
    seen: list[object] = []
    gone = threading.Event()

    def handler(_order: str, ctx: TaskContext) -> str:
        world.clock.advance("20s")
        ctx.wait(10)
        with pytest.raises(LeaseLost):
            ctx.heartbeat()
        seen.append((ctx.cancelled, ctx.remaining()))
        gone.set()
        return "too late"

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().rescheduled == 1
    assert gone.wait(10)
    assert world.error(task_id).code == "task_timeout"
    assert seen == [(True, timedelta(0))]
    assert world.task(task_id).result is None


def test_a_handler_that_ignores_its_timeout_keeps_its_slot_and_nothing_else() -> None:
    world = World(
        execution={"lease": "60s", "handler_timeout": "20s"},
        dispatch={"concurrency": 2},
        retry={"initial_backoff": "1h", "max_backoff": "1h"},
    )
    release = threading.Event()

    def handler(order: str) -> None:
        if order == "stuck":
            world.clock.advance("20s")
            release.wait(20)

    world.handler(handler)
    world.submit("stuck")
    assert world.sweep().rescheduled == 1
    for number in range(5):
        world.submit(f"order {number}")
    assert world.sweep().completed == 5
    assert not world.sweeper.slots.acquire(QUEUE, 1)
    release.set()
    until(lambda: world.sweeper.slots.acquire(QUEUE, 1) > 0)


def test_an_async_handler_is_cancelled_on_its_timeout() -> None:
    world = World(execution={"handler_timeout": "20s"})
    cancelled = threading.Event()

    async def handler(_order: str) -> None:
        world.clock.advance("20s")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    world.handler(handler)
    task_id = world.submit()
    world.sweep()
    assert cancelled.wait(10)
    assert world.error(task_id).code == "task_timeout"


def test_a_handler_that_blocks_for_many_leases_runs_once_while_its_heartbeat_goes_on() -> None:
    world = World(execution={"lease": "6s", "handler_timeout": "10m"})
    starts: list[int] = []

    def handler(_order: str, ctx: TaskContext) -> None:
        starts.append(ctx.attempt_no)
        for _ in range(20):
            before = world.store.get(ctx.task.id)
            world.clock.advance("2s")
            until(lambda before=before: world.store.get(ctx.task.id) != before)  # type: ignore[misc]

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().completed == 1
    assert starts == [1]
    assert len(world.attempts(task_id)) == 1


def test_a_lost_heartbeat_cancels_the_handler_and_the_run_is_lost_and_nothing_else() -> None:
    world = World(execution={"lease": "6s", "handler_timeout": "10m"})
    heard: list[bool] = []

    def handler(_order: str, ctx: TaskContext) -> str:
        world.store.cancel(ctx.task.id, now=world.clock.now(), op_id="op", expires_at=None)
        world.clock.advance("2s")
        heard.append(ctx.wait(10))
        return "too late"

    world.handler(handler)
    task_id = world.submit()
    report = world.sweep()
    until(lambda: heard == [True])
    assert (report.lost, report.completed) == (1, 0)
    assert world.told.names()[-2:] == [EventName.HEARTBEAT_LOST, EventName.LOST]
    assert (world.task(task_id).status, world.task(task_id).result) == (Status.CANCELLED, None)


def test_an_outcome_after_the_lease_ended_counts_until_a_reclaim() -> None:
    world = World(execution={"lease": "6s", "handler_timeout": "5s", "heartbeat": "off"})

    def handler(_order: str) -> None:
        world.clock.advance("4s")

    world.handler(handler)
    task_id = world.submit()
    assert world.sweep().completed == 1
    assert world.task(task_id).status is Status.SUCCEEDED


def test_stopping_releases_who_gives_up_and_lets_others_finish() -> None:
    world = World(dispatch={"concurrency": 3})
    stop, started = Stop(), threading.Barrier(3)

    def finishes(_order: str) -> str:
        started.wait(10)
        stop.request()
        return "done"

    def cooperates(_order: str, ctx: TaskContext) -> None:
        started.wait(10)
        assert ctx.wait(10)

    def checks(_order: str, ctx: TaskContext) -> None:
        started.wait(10)
        ctx.wait(10)
        ctx.check_lease()

    world.handler(finishes, "finishes")
    world.handler(cooperates, "cooperates")
    world.handler(checks, "checks")
    tasks = [world.submit(ref=ref) for ref in ("finishes", "cooperates", "checks")]
    report = world.sweep(stop=stop)
    assert (report.completed, report.released) == (1, 2)
    for task_id in tasks[1:]:
        task = world.task(task_id)
        assert task.failure is not None
        assert (task.status, task.failure.code, task.attempt_count, task.attempts) == (
            Status.PENDING,
            "worker_shutdown",
            0,
            (),
        )
        assert task.is_due(world.clock.now())


def test_stopping_releases_who_ignores_it_when_the_grace_is_over() -> None:
    world = World()
    stop, end = Stop(), threading.Event()

    def ignores(_order: str) -> None:
        stop.request(deadline=world.clock.now() + timedelta(seconds=5))
        world.clock.advance("5s")
        end.wait(20)

    world.handler(ignores)
    task_id = world.submit()
    assert world.sweep(stop=stop).released == 1
    assert world.task(task_id).status is Status.PENDING
    end.set()


def test_the_context_has_what_makes_a_handler_idempotent() -> None:
    world = World()
    seen: list[object] = []

    def handler(order: bytes, ctx: TaskContext) -> None:
        seen.extend(
            [
                order,
                ctx.payload,
                ctx.idempotency_key,
                ctx.attempt_no,
                ctx.fencing_token,
                ctx.remaining(),
            ]
        )

    world.handler(handler)
    task_id = world.submit(b"\x00\xff")
    world.sweep()
    fence = world.attempts(task_id)[0].fencing_token
    assert seen == [b"\x00\xff", b"\x00\xff", task_id, 1, fence, timedelta(seconds=45)]


def test_a_storage_failure_while_settling_is_reported_and_the_lease_recovers_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rdq_core.errors import StoreFailed

    world = World(execution={"lease": "60s"})
    world.handler(lambda _order: None)
    task_id = world.submit()
    complete = world.store.complete
    failures = [StoreFailed("gone", may_have_happened=False)]

    def flaky(*arguments: object, **options: object) -> None:
        if failures:
            raise failures.pop()
        complete(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "complete", flaky)
    assert world.sweep().lost == 1
    assert [where for where, _ in world.told.errors] == [f"settling task {task_id}"]
    world.clock.advance("60s")
    assert world.sweep().completed == 1
    assert [attempt.outcome for attempt in world.attempts(task_id)] == [
        Outcome.LEASE_EXPIRED,
        Outcome.SUCCESS,
    ]


def test_the_context_shows_handlers_only_what_they_use() -> None:
    world, shown = World(), set[str]()
    world.handler(lambda _order, ctx: shown.update(vars(ctx), dir(ctx)))
    world.submit()
    assert world.sweep().completed == 1
    assert {name for name in shown if not name.startswith("_")} == {
        *("task", "attempt_no", "fencing_token", "deadline", "idempotency_key", "payload"),
        *("remaining", "cancelled", "wait", "check_lease", "heartbeat"),
    }
