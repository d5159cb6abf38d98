"""The pytest fixture `local_rdq`, on both of its stores, and what its assertions tell when they
fail.
"""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rdq_core import Abort, Registry, RetryAfter, TaskContext
from rdq_core.errors import ConfigInvalid, NotRegistered, StoreFailed
from rdq_core.testing.embedded import Embedded, in_memory
from tests.support.processes import HANGS

QUEUES = {
    "billing": {
        "retry": {"max_attempts": 5, "initial_backoff": "1h", "max_backoff": "7d"},
        "index_shards": 2,
    }
}


@pytest.fixture(params=["memory", "moto"])
def rdq_store(request: pytest.FixtureRequest) -> str:
    store: str = request.param
    return store


@pytest.fixture
def rdq_queues() -> Any:
    return QUEUES


@pytest.fixture
def rdq_registry() -> Registry:
    registry = Registry(queues=["billing"])

    @registry.handler("charge")
    def charge(order: str, ctx: TaskContext) -> str:
        return f"{order} at attempt {ctx.attempt_no}"

    @registry.handler("mail")
    async def mail(order: str) -> None:
        assert order

    return registry


def submitted(local: Embedded, **options: Any) -> str:
    return local.rdq.submit("billing", "charge", "order", **options).id


def test_a_handler_runs_under_its_real_retry_policy(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq)
    local_rdq.fail_next("charge", ConnectionError("gone"), times=3)
    assert local_rdq.drain(horizon="30d").total.claimed == 4
    history = local_rdq.history(task_id).waited("1h", "2h", "4h").failed(ConnectionError, times=3)
    assert history.succeeded().result == b"order at attempt 4"


def test_failures_of_a_handler_that_is_not_there_are_refused_by_the_names_of_those_that_are(
    rdq_registry: Registry,
) -> None:
    local = in_memory(QUEUES, registry=rdq_registry)
    local.fail_next("chrage", ConnectionError("gone"))
    with pytest.raises(NotRegistered, match=r"fail_next\('chrage'\).* charge, mail") as refused:
        local.drain()
    assert refused.value.hint == "did you mean charge?"


def test_failures_that_nothing_could_meet_fail_the_test_at_its_end(local_rdq: Embedded) -> None:
    local_rdq.fail_next("charge", ConnectionError("gone"), times=2)
    with pytest.raises(AssertionError, match=r"fail_next\('charge'\) had no effect"):
        local_rdq.check_failures_met()
    submitted(local_rdq)
    local_rdq.drain()
    local_rdq.check_failures_met()


FORGETFUL = """
def test_it(local_rdq):
    local_rdq.fail_next("charge", ConnectionError)
"""


@pytest.mark.parametrize("store", ["memory", "moto"])
def test_a_test_that_forgets_to_drain_is_told(tmp_path: Path, store: str) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import pytest\n\n@pytest.fixture\ndef rdq_store():\n    return {store!r}\n"
    )
    (tmp_path / "test_forgetful.py").write_text(FORGETFUL)
    command = [sys.executable, "-m", "pytest", "-q", str(tmp_path)]
    told = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS, check=False
    ).stdout
    assert "1 passed, 1 error" in told
    assert "AssertionError: fail_next('charge') had no effect: no attempt was run since" in told


def test_a_failure_may_be_a_class_and_must_be_an_exception(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq)
    local_rdq.fail_next("charge", ConnectionError)
    local_rdq.drain()
    local_rdq.history(task_id).failed(ConnectionError).pending()
    with pytest.raises(TypeError, match="ends in an exception, not in a str"):
        local_rdq.fail_next("charge", "gone")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [RetryAfter, Abort, UnicodeDecodeError])
def test_a_class_that_needs_arguments_is_refused_when_it_is_asked_for(
    local_rdq: Embedded, error: type[Exception]
) -> None:
    with pytest.raises(TypeError, match=rf"{error.__name__} .*; give one that is made"):
        local_rdq.fail_next("charge", error)


def test_spans_without_a_unit_are_refused_by_their_name(local_rdq: Embedded) -> None:
    for name, call in (
        ("horizon", lambda: local_rdq.drain(horizon=60)),  # type: ignore[arg-type]
        ("horizon", lambda: local_rdq.sweep(horizon="60")),
        ("span", lambda: local_rdq.advance(60)),  # type: ignore[arg-type]
        ("waited", lambda: local_rdq.history(submitted(local_rdq)).waited(60)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=rf"^{name}: must be a duration with its unit"):
            call()


def test_three_days_of_failures_need_not_be_counted(local_rdq: Embedded) -> None:
    local_rdq.configure(
        "billing", {"retry": {"max_attempts": 50, "initial_backoff": "1h", "max_backoff": "6h"}}
    )
    task_id = submitted(local_rdq)
    local_rdq.fail_next("charge", ConnectionError("gone"), times=14)
    local_rdq.drain(horizon=timedelta(days=4))
    task = local_rdq.history(task_id).failed(ConnectionError, times=None).succeeded()
    assert task.completed_at is not None
    assert task.completed_at - task.created_at >= timedelta(days=3)


def test_any_number_of_failures_is_one_at_least(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq)
    local_rdq.drain()
    with pytest.raises(AssertionError, match="expected an attempt that failed"):
        local_rdq.history(task_id).failed(times=None)


def test_waits_that_are_others_are_told_beside_those_expected(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq)
    local_rdq.fail_next("charge", ConnectionError("gone"), times=2)
    local_rdq.drain(horizon="1d")
    with pytest.raises(AssertionError, match="expected waits of 1h, 3h, not of 1h, 2h"):
        local_rdq.history(task_id).waited("1h", timedelta(hours=3))


def test_failures_go_through_the_rules_of_signals_and_are_met_in_their_order(
    local_rdq: Embedded,
) -> None:
    task_id = submitted(local_rdq)
    local_rdq.fail_next("charge", RetryAfter("3h", "asked_to_wait"))
    local_rdq.fail_next("charge", Abort("declined", "no"))
    local_rdq.drain()
    local_rdq.history(task_id).failed(code="asked_to_wait", permanent=False).pending(due_in="3h")
    local_rdq.drain(horizon="3h")
    local_rdq.history(task_id).failed(times=1).failed(code="declined", permanent=True).dead(
        "declined"
    )


def test_a_failure_is_met_by_its_handler_alone_and_by_async_ones_too(local_rdq: Embedded) -> None:
    charge, mail = submitted(local_rdq), local_rdq.rdq.submit("billing", "mail", "order")
    local_rdq.fail_next("mail", OSError("no such host"))
    local_rdq.drain()
    local_rdq.history(charge).succeeded()
    local_rdq.history(mail).failed(OSError).pending()


def test_nothing_moves_before_its_time(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq, delay="2h")
    start = local_rdq.clock.now()
    local_rdq.advance("119m")
    assert local_rdq.drain().total.claimed == 0
    local_rdq.history(task_id).pending(due_in="2h")
    assert local_rdq.drain(horizon="59s").total.claimed == 0
    assert local_rdq.drain(horizon="1m").total.claimed == 1
    assert local_rdq.clock.now() == start + timedelta(hours=2)


def test_work_that_waits_for_something_else_than_time_does_not_hold_the_drain_for_ever(
    local_rdq: Embedded,
) -> None:
    task_id = submitted(local_rdq)
    local_rdq.parts.queues.pause("billing", paused=True, now=local_rdq.clock.now())
    assert local_rdq.drain(horizon="30d").total.claimed == 0
    local_rdq.history(task_id).pending()


def test_tasks_of_one_key_are_run_one_after_the_other(local_rdq: Embedded) -> None:
    ids = [submitted(local_rdq, concurrency_key="customer-5") for _ in range(3)]
    assert local_rdq.drain(horizon="1m").total.completed == 3
    for task_id in ids:
        local_rdq.history(task_id).succeeded()


def test_a_cancelled_task_has_its_own_end(local_rdq: Embedded) -> None:
    task_id = submitted(local_rdq)
    local_rdq.rdq.cancel(task_id)
    local_rdq.drain(horizon="1d")
    local_rdq.history(task_id).cancelled()


def test_a_configuration_that_would_be_refused_is_refused(local_rdq: Embedded) -> None:
    with pytest.raises(ConfigInvalid, match="max_atempts"):
        local_rdq.configure("billing", {"retry": {"max_atempts": 3}})


def test_requests_are_lost_as_the_script_says_and_no_wait_is_real(
    local_rdq: Embedded, rdq_store: str
) -> None:
    if rdq_store == "memory":
        with pytest.raises(RuntimeError, match="moto"):
            local_rdq.faults()
        return
    with local_rdq.faults() as faults:
        faults.reject("ThrottlingException", "PutItem", times=3)
        task_id = submitted(local_rdq)
        faults.lose_request("PutItem", times=None)
        with pytest.raises(StoreFailed):
            submitted(local_rdq)
    local_rdq.drain()
    local_rdq.history(task_id).succeeded()


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        (lambda history: history.succeeded(), "attempt 1: expected an attempt that succeeded"),
        (lambda history: history.failed(KeyError), "attempt 1: expected an error of type KeyError"),
        (
            lambda history: history.failed(code="declined"),
            "attempt 1: expected an error with the code declined",
        ),
        (lambda history: history.failed(permanent=True), "attempt 1: expected permanent"),
        (lambda history: history.lapsed(), "attempt 1: expected a lease that ended"),
        (
            lambda history: history.failed(times=3),
            "attempt 2: expected one more attempt, which failed",
        ),
        (lambda history: history.dead(), "expected DEAD"),
        (lambda history: history.pending(), "expected no more attempts"),
        (
            lambda history: history.failed(times=2).pending(due_in="1s"),
            "attempt 2: expected due in 1s",
        ),
        (lambda history: history.waited("1m"), "expected waits of 1m"),
    ],
)
def test_what_is_not_so_is_told_with_the_whole_history(
    rdq_registry: Registry, says: Any, wanted: str
) -> None:
    local = in_memory(QUEUES, registry=rdq_registry)
    task_id = submitted(local)
    local.fail_next("charge", OSError("no such host"), times=2)
    local.drain(horizon="90m")
    with pytest.raises(AssertionError) as told:
        says(local.history(task_id))
    assert str(told.value).startswith(wanted)
    assert "2. 2026-07-20 13:00:00 RETRYABLE_FAILURE OSError (task_failed): no such host" in str(
        told.value
    )


def test_a_test_without_handlers_is_told_how_to_give_them() -> None:
    with pytest.raises(RuntimeError, match="rdq_registry"):
        in_memory({}).drain()


def test_queues_that_are_a_whole_document_are_refused_by_name() -> None:
    document: dict[str, Any] = {"config_version": 1, "queues": {"billing": {}}}
    with pytest.raises(ConfigInvalid, match=r"queues\.config_version"):
        in_memory(document)


def test_the_plugin_loads_nothing_before_a_test_asks_for_it() -> None:
    code = (
        "import sys, rdq_core.testing.plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('rdq_core')))\n"
        "heavy = {'boto3', 'botocore', 'moto', 'pydantic', 'yaml', 'asyncio'}\n"
        "print(*(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules, others = done.stdout.split("\n")[:2]
    assert modules.split() == ["rdq_core", "rdq_core.testing", "rdq_core.testing.plugin"]
    assert others == ""
