"""Handlers that are Lambda functions: what becomes of a task whose function fails, or is not
reached at all.
"""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError

from rdq_core.domain.attempt import Code
from rdq_core.domain.task import Status
from rdq_core.engine.events import EventName
from rdq_core.engine.sweep import SweepLimits
from tests.engine.world import NOW_ONLY, World, raises
from tests.handlers.charge_fn import ORDER, PERMANENT, RETRYABLE, outcome, swept, world_with
from tests.support.functions import failed, refused

FUNCTION_ERRORS: dict[str, tuple[dict[str, Any], str, str | None, str]] = {
    "Python": (
        {
            "errorType": "ValueError",
            "errorMessage": "no",
            "stackTrace": ['  File "a.py", line 1\n', "    raise\n"],
        },
        "ValueError",
        '  File "a.py", line 1\n    raise',
        Code.FAILED,
    ),
    "Node": (
        {
            "errorType": "TypeError",
            "errorMessage": "no",
            "trace": ["TypeError: no", "    at a.js:1:2"],
        },
        "TypeError",
        "TypeError: no\n    at a.js:1:2",
        Code.FAILED,
    ),
    "Java": (
        {
            "errorType": "java.lang.IllegalStateException",
            "errorMessage": "no",
            "stackTrace": ["shop.Charge.run(Charge.java:7)"],
            "cause": {
                "errorType": "java.io.IOException",
                "errorMessage": "reset",
                "stackTrace": ["java.net.Socket.read"],
            },
        },
        "java.lang.IllegalStateException",
        (
            "shop.Charge.run(Charge.java:7)\n"
            "Caused by: java.io.IOException: reset\njava.net.Socket.read"
        ),
        Code.FAILED,
    ),
    "Go": (
        {
            "errorType": "errorString",
            "errorMessage": "no",
            "stackTrace": [{"path": "m.go", "line": 3, "label": "run"}],
        },
        "errorString",
        "m.go:3 run",
        Code.FAILED,
    ),
    "a function that exited": (
        {"errorType": "Runtime.ExitError", "errorMessage": "RequestId: 1 Error: exited"},
        "rdq.HandlerCrashed",
        None,
        Code.HANDLER_PANICKED,
    ),
    "a function that ran out of time": (
        {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 3.00 seconds"},
        "rdq.Timeout",
        None,
        Code.TIMEOUT,
    ),
    "time that was up, in older words": (
        {"errorMessage": "2026-07-20T12:00:00Z 1 Task timed out after 3.00 seconds"},
        "rdq.Timeout",
        None,
        Code.TIMEOUT,
    ),
    "something else": ({"oops": 1}, "rdq.Failed", None, Code.FAILED),
}


class TestFailures:
    @pytest.mark.parametrize("runtime", FUNCTION_ERRORS)
    def test_a_function_error_is_kept_with_its_own_type_message_and_stack(
        self, runtime: str
    ) -> None:
        payload, kind, stack, code = FUNCTION_ERRORS[runtime]
        world = world_with(failed(**payload))
        task_id = swept(world)
        error = world.error(task_id)
        assert (error.type, error.stack, error.code) == (kind, stack, code)
        assert payload.get("errorMessage", "") in error.message
        assert world.attempts(task_id)[0].outcome is RETRYABLE

    def test_the_queues_globs_judge_a_functions_own_types(self) -> None:
        world = world_with(
            failed(errorType="CardDeclined"), queue={"classification": {"permanent": ["Card*"]}}
        )
        assert outcome(world, swept(world))[0] is PERMANENT

    @pytest.mark.parametrize("payload", [b"<html>", b"[" * 100_000])
    def test_a_function_error_that_is_no_json_is_a_failure_all_the_same(
        self, payload: bytes
    ) -> None:
        world = world_with(
            lambda _request: {"FunctionError": "Unhandled", "Payload": _Bytes(payload)}
        )
        assert outcome(world, swept(world))[2] == "rdq.Failed"

    def test_no_answer_within_the_handlers_time_is_a_timeout(self) -> None:
        world = world_with(ReadTimeoutError(endpoint_url="https://lambda"))
        assert outcome(world, swept(world)) == (RETRYABLE, Code.TIMEOUT, "rdq.Timeout")

    def test_an_answer_that_was_lost_is_an_attempt_of_which_nobody_knows_the_end(self) -> None:
        world = world_with(ConnectionClosedError(endpoint_url="https://lambda"))
        assert outcome(world, swept(world)) == (
            RETRYABLE,
            Code.OUTCOME_UNKNOWN,
            "rdq.OutcomeUnknown",
        )

    def test_a_function_that_does_not_exist_is_unroutable(self) -> None:
        world = world_with(refused("ResourceNotFoundException"))
        assert outcome(world, swept(world)) == (PERMANENT, Code.NOT_REGISTERED, "rdq.Unroutable")

    @pytest.mark.parametrize("code", ["InvalidRequestContentException", "RequestTooLargeException"])
    def test_a_payload_that_the_service_refuses_is_invalid_input(self, code: str) -> None:
        world = world_with(refused(code))
        assert outcome(world, swept(world)) == (PERMANENT, Code.INPUT_INVALID, "rdq.InputInvalid")


NOT_REACHED = [
    refused("TooManyRequestsException"),
    refused("ServiceException"),
    refused("AccessDeniedException"),
    refused("ResourceConflictException"),
    ConnectTimeoutError(endpoint_url="https://lambda"),
]


class TestNotReached:
    @pytest.mark.parametrize(
        "error", NOT_REACHED, ids=lambda error: type(error).__name__ + str(error)[-60:]
    )
    def test_it_is_no_attempt_and_the_task_waits_longer_each_time(self, error: Exception) -> None:
        world = world_with(*[error] * 12)
        task_id = swept(world)
        waits = []
        for _ in range(11):
            task = world.task(task_id)
            assert (task.status, task.attempt_count, task.attempts) == (Status.PENDING, 0, ())
            assert task.next_attempt_at is not None
            waits.append((task.next_attempt_at - world.clock.now()).total_seconds())
            world.clock.advance(task.next_attempt_at - world.clock.now())
            world.sweep()
        assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        assert world.told.last(EventName.RELEASED).code == Code.UNAVAILABLE

    def test_throttled_for_hours_it_still_has_its_whole_budget(self) -> None:
        world = world_with(
            *[refused("TooManyRequestsException")] * 100,
            b"null",
            queue={"retry": {"max_attempts": 1}},
        )
        task_id = swept(world)
        for _ in range(101):
            world.clock.advance("5m")
            world.sweep()
        task = world.task(task_id)
        assert (task.status, [attempt.attempt_no for attempt in task.attempts]) == (
            Status.SUCCEEDED,
            [1],
        )

    def test_after_dispatch_give_up_it_is_dead_without_an_attempt(self) -> None:
        world = world_with(*[refused("TooManyRequestsException")] * 100)
        world.configure(
            index_shards=1,
            execution={"handler_timeout": "5s", "dispatch_give_up": "1h"},
            handlers={"charge": {"function": "charge-fn"}},
        )
        task_id = swept(world)
        for _ in range(11):
            world.clock.advance("5m")
            world.sweep()
        assert world.task(task_id).status is Status.PENDING
        world.clock.advance("5m")
        world.sweep()
        task = world.task(task_id)
        assert task.failure is not None
        assert (task.status, task.failure.code, task.attempts) == (
            Status.DEAD,
            Code.UNAVAILABLE,
            (),
        )

    def test_an_attempt_in_between_starts_the_count_anew(self) -> None:
        throttled = refused("TooManyRequestsException")
        world = world_with(
            throttled, throttled, failed(errorType="E"), throttled, queue={"retry": {"jitter": 0}}
        )
        task_id = swept(world)
        for _ in range(3):
            world.clock.advance("1m")
            world.sweep()
        task = world.task(task_id)
        assert (task.attempt_count, task.next_attempt_at) == (
            1,
            world.clock.now() + timedelta(seconds=1),
        )

    def test_no_further_task_is_claimed_for_that_function_in_this_sweep_and_others_go_on(
        self,
    ) -> None:
        world = world_with()
        world.configure(
            index_shards=1,
            dispatch={"concurrency": 1},
            handlers={"charge": {"function": "charge-fn"}, "refund": {"function": "refund-fn"}},
        )
        world.functions.always("charge-fn", refused("TooManyRequestsException"))
        for ref in ("charge", "charge", "charge", "refund", "charge", "refund"):
            world.submit(ORDER, ref=ref, content_type="application/json")
        report = world.sweep(SweepLimits(horizon=timedelta(seconds=30)))
        assert sorted(world.functions.called) == ["charge-fn", "refund-fn", "refund-fn"]
        assert (report.released, report.completed) == (1, 2)
        world.functions.always("charge-fn", b"null")
        world.clock.advance("10m")
        assert world.sweep().completed == 4


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self) -> bytes:
        return self._content


def test_a_handler_that_raises_here_is_not_mistaken_for_a_function() -> None:
    world = World()
    world.handler(raises(ReadTimeoutError(endpoint_url="https://elsewhere")))
    task_id = world.submit()
    world.sweep(NOW_ONLY)
    assert world.error(task_id).type == "botocore.exceptions.ReadTimeoutError"
