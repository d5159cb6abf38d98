"""Typed tasks: what a definition refuses, what submits and consumers accept and return."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rdq_core import Registry, Retry, Status, TaskContext, TaskDefinition, task
from rdq_core.client.rdq import Rdq
from rdq_core.errors import (
    ConfigInvalid,
    InputInvalid,
    NotRegistered,
    OutputInvalid,
    RdqError,
    TaskNotFound,
)
from tests.engine.world import QUEUE, World
from tests.handlers.mail import Mail, Sent, send_email


def a_world(*definitions: TaskDefinition[Any, Any], **config: Any) -> World:
    world = World(**config)
    world.registry.add(*definitions or (send_email,))
    return world


def defined(function: Any, **options: Any) -> TaskDefinition[Any, Any]:
    return task("work", **{"queue": QUEUE, **options})(function)


# -- definitions -----------------------------------------------------------------------------------


def test_a_typed_task_runs_and_its_output_comes_back_typed() -> None:
    world = a_world()
    receipt = send_email.submit(world.rdq, Mail(to="ada"))
    world.sweep()
    done = send_email.result(world.rdq, receipt.id)
    assert (done.status, done.output, done.has_output) == (
        Status.SUCCEEDED,
        Sent(provider_id="ada/1"),
        True,
    )
    assert (len(done.attempts), done.failure, done.completed_at) == (1, None, world.clock.now())


def test_a_submit_pins_the_version_and_stores_json_by_alias() -> None:
    world = a_world()
    stored = world.task(send_email.submit(world.rdq, Mail(to="ada", messageID="m-7")).id)
    assert (stored.handler_version, stored.payload_content_type) == ("v3", "application/json")
    assert json.loads(stored.payload)["messageID"] == "m-7"


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"retry": Retry(max_attempts=0)}, "tasks.work.retry.max_attempts"),
        ({"retry": Retry(max_attempts=101)}, "tasks.work.retry.max_attempts"),
        ({"retry": Retry(initial_backoff="60")}, "tasks.work.retry.initial_backoff"),
        ({"retry": Retry(initial_backoff=timedelta(0))}, "tasks.work.retry.initial_backoff"),
        ({"retry": Retry(initial_backoff=timedelta(-1))}, "tasks.work.retry.initial_backoff"),
        ({"retry": Retry(backoff="cubic")}, "tasks.work.retry.backoff"),  # type: ignore[arg-type]
        ({"retry": Retry(jitter=1.5)}, "tasks.work.retry.jitter"),
        ({"retry": Retry(jitter=float("nan"))}, "tasks.work.retry.jitter"),
        ({"retry": {"max_attempts": 3}}, "tasks.work.retry"),
        ({"timeout": "25h"}, "tasks.work.timeout"),
        ({"timeout": 30}, "tasks.work.timeout"),
        ({"retention": "1m"}, "tasks.work.retention"),
        ({"retention": "366d"}, "tasks.work.retention"),
        ({"queue": "rdq.mine"}, "tasks.work.queue"),
        ({"queue": None}, "tasks.work.queue"),
        ({"version": ""}, "tasks.work.version"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_the_task_is_defined(
    options: dict[str, Any], path: str
) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        defined(lambda _mail: None, **options)
    assert refusal.value.path == path


@pytest.mark.parametrize("name", ["rdq.mine", "rdq-mine", "Café", "", "x\n", None, 5])
def test_a_bad_or_reserved_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigInvalid, match="name"):
        task(name, queue=QUEUE)


def three(a: int, b: int, c: int) -> None: ...


def unspeakable(value: "object()") -> None: ...  # type: ignore[valid-type]


def no_json(value: type[int] | RdqError) -> None: ...


@pytest.mark.parametrize(
    "function", [None, 5, lambda mail: mail, three, lambda: None, unspeakable, no_json]
)
def test_a_function_that_no_task_could_call_is_refused(function: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"tasks\.work"):
        defined(function)


def test_a_name_is_registered_once() -> None:
    registry = Registry()
    registry.add(send_email)
    with pytest.raises(ConfigInvalid, match="send-email"):
        registry.add(send_email)
    with pytest.raises(ConfigInvalid, match="send-email"):
        registry.register("send-email", lambda _mail: None)


class Lookalike:
    name = "send-email"
    queue = QUEUE


def half_made() -> object:
    return object.__new__(TaskDefinition)


@pytest.mark.parametrize("impostor", [Lookalike, dict, half_made])
def test_only_what_task_has_made_is_a_definition(impostor: Any) -> None:
    with pytest.raises(ConfigInvalid, match=r"only rdq_core\.task makes definitions"):
        Registry().add(impostor())


def test_a_definition_is_not_made_or_extended_by_hand() -> None:
    with pytest.raises(ConfigInvalid):
        TaskDefinition(
            object(),
            name="x",
            queue=QUEUE,
            version=None,
            signature=None,  # type: ignore[arg-type]
            options={},
            strict_input=True,
            outcome=None,
        )
    with pytest.raises(TypeError):
        type("Mine", (TaskDefinition,), {})


def test_a_registry_serves_the_queues_of_its_typed_tasks_too() -> None:
    registry = Registry(queues=["first"])
    registry.add(send_email)
    assert tuple(registry.queues) == ("first", QUEUE)


def test_a_definition_is_refused_that_is_not_in_the_registry_of_its_rdq() -> None:
    world = World()
    alone = Rdq(parts=world.parts, registry=Registry())
    with pytest.raises(NotRegistered) as refusal:
        send_email.submit(alone, Mail(to="ada"))
    assert refusal.value.code == "task_not_registered"
    assert world.store.counts(QUEUE).pending == 0


# -- input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        "ada",
        {"to": "ada", "unknown": 1},
        {"copies": 1},
        {"to": 5},
        {"to": "ada", "copies": "1"},
        {"to": "ada", "address": {"host": "x", "port": 1}},
        {"to": "ada", "weight": float("nan")},
        Mail.model_construct(to="ada", weight=float("inf")),
        Mail.model_construct(to=object()),
        Mail(to="x" * 1024 * 1024),
    ],
)
def test_a_submit_of_anything_else_is_refused_and_nothing_is_stored(value: Any) -> None:
    world = a_world()
    with pytest.raises(InputInvalid) as refusal:
        send_email.submit(world.rdq, value)
    assert refusal.value.field == "payload"
    assert world.store.counts(QUEUE).pending == 0


class Reading(BaseModel):
    values: dict[str, Any] = Field(default_factory=dict)
    average: float | None = None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Reading(values={"a": [None, float("nan")]}), "$.values.a[1]"),
        (Reading(average=float("inf")), "$.average"),
        ({"average": float("nan")}, "$.average"),
    ],
)
def test_nan_is_refused_where_null_would_fit(value: Any, path: str) -> None:
    def read(reading: Reading) -> Any:
        return reading.values

    with pytest.raises(InputInvalid, match="has NaN or an infinity") as refusal:
        defined(read).new(value)
    assert refusal.value.problem.endswith(path)


def test_an_output_with_nan_is_a_permanent_failure_where_null_would_fit() -> None:
    def read(_mail: Mail) -> Any:
        return {"average": float("nan")}

    definition = defined(read)
    world = a_world(definition)
    task_id = definition.submit(world.rdq, Mail(to="ada")).id
    assert world.sweep().dead_lettered == 1
    assert world.error(task_id).code == "task_output_invalid"


BAD_PAYLOADS = [
    b"",
    b"{",
    b'{"to":"ada"} 5',
    b'{"to":"ada","unknown":1}',
    b'{"to":"ada","address":{"host":"x","port":1}}',
    b"{}",
    b'{"to":5}',
    b'{"to":"ada","copies":"1"}',
    b'{"to":"ada","weight":NaN}',
    b'{"to":"ada","weight":1e999}',
    b'"\xff"',
    b"null",
]


@pytest.mark.parametrize("payload", BAD_PAYLOADS)
def test_a_stored_input_that_does_not_fit_is_dead_at_the_first_attempt(payload: bytes) -> None:
    world = a_world()
    task_id = world.submit(payload, ref="send-email")
    assert world.sweep().dead_lettered == 1
    assert (world.error(task_id).code, world.error(task_id).type) == (
        "task_input_invalid",
        "rdq.InputInvalid",
    )
    assert len(world.attempts(task_id)) == 1


def test_a_refused_input_tells_where_it_is_wrong_and_never_the_value() -> None:
    world = a_world()
    task_id = world.submit(b'{"to":"ada","copies":"secret"}', ref="send-email")
    world.sweep()
    assert "copies" in world.error(task_id).message
    assert "secret" not in world.error(task_id).message


def test_a_consumer_that_is_not_strict_passes_over_fields_that_it_does_not_know() -> None:
    def read(mail: Mail) -> str:
        return mail.to

    world = a_world(defined(read, strict_input=False))
    known = world.submit(b'{"to":"ada","address":{"host":"x","port":1},"new":1}', ref="work")
    wrong = world.submit(b'{"to":5,"new":1}', ref="work")
    world.sweep()
    assert (world.task(known).status, world.task(wrong).status) == (Status.SUCCEEDED, Status.DEAD)


def test_submit_options_are_those_of_a_plain_submit() -> None:
    world = a_world()
    world.configure("other")
    at = datetime(2026, 7, 21, tzinfo=UTC)
    receipt = send_email.submit(
        world.rdq,
        Mail(to="ada"),
        queue="other",
        key="order-7",
        headers={"a": "b"},
        run_at=at,
        concurrency_key="ada",
        target="order:7",
        requested_by="user:1",
    )
    stored = world.rdq.get(queue="other", key="order-7")
    assert stored.id == receipt.id
    assert (stored.next_attempt_at, stored.concurrency_key) == (at, "ada")
    assert (stored.target, stored.requested_by, stored.headers["a"]) == ("order:7", "user:1", "b")


# -- output ----------------------------------------------------------------------------------------


@dataclass
class Total:
    amount: int


def nothing(_mail: Mail) -> None: ...
def zero(_mail: Mail) -> int: return 0  # fmt: skip


def empty(_mail: Mail) -> str: return ""  # fmt: skip


def a_list(_mail: Mail) -> list[Total]: return [Total(0)]  # fmt: skip


def maybe(_mail: Mail) -> Total | None: return None  # fmt: skip


@pytest.mark.parametrize(
    ("function", "output"),
    [(nothing, None), (zero, 0), (empty, ""), (a_list, [Total(0)]), (maybe, None)],
)
def test_a_zero_or_null_output_is_output(function: Any, output: object) -> None:
    definition = defined(function)
    world = a_world(definition)
    receipt = definition.submit(world.rdq, Mail(to="ada"))
    before = definition.result(world.rdq, receipt.id)
    world.sweep()
    after = definition.result(world.rdq, receipt.id)
    assert (before.has_output, before.output, before.completed_at) == (False, None, None)
    assert (after.has_output, after.output) == (True, output)


def test_a_failed_task_has_its_failure_and_no_output() -> None:
    def fails(_mail: Mail) -> int:
        raise ConnectionError("down")

    definition = defined(fails, retry=Retry(max_attempts=1))
    world = a_world(definition)
    receipt = definition.submit(world.rdq, Mail(to="ada"))
    world.sweep()
    dead = definition.result(world.rdq, receipt.id)
    assert dead.failure is not None
    assert (dead.status, dead.failure.code, dead.has_output) == (Status.DEAD, "task_failed", False)


def test_a_result_through_another_definition_is_not_found() -> None:
    other = defined(zero)
    world = a_world(send_email, other)
    receipt = send_email.submit(world.rdq, Mail(to="ada"))
    with pytest.raises(TaskNotFound):
        other.result(world.rdq, receipt.id)
    with pytest.raises(TaskNotFound):
        send_email.result(world.rdq, "0" * 26)


def test_a_stored_output_that_no_longer_fits_is_told_and_stays() -> None:
    world = a_world(defined(zero))
    receipt = defined(zero).submit(world.rdq, Mail(to="ada"))
    world.sweep()

    def renamed(_mail: Mail) -> Sent:
        return Sent(provider_id="")

    with pytest.raises(OutputInvalid) as refusal:
        defined(renamed).result(world.rdq, receipt.id)
    assert (refusal.value.code, refusal.value.task_id) == ("task_output_invalid", receipt.id)
    assert world.task(receipt.id).result == b"0"


def test_an_output_of_another_type_is_a_permanent_failure() -> None:
    def lies(_mail: Mail) -> int:
        return "no number"  # type: ignore[return-value]

    definition = defined(lies)
    world = a_world(definition)
    receipt = definition.submit(world.rdq, Mail(to="ada"))
    world.sweep()
    assert (world.task(receipt.id).status, world.error(receipt.id).code) == (
        Status.DEAD,
        "task_output_invalid",
    )


def test_an_output_over_a_mebibyte_is_a_permanent_failure() -> None:
    def long(_mail: Mail) -> str:
        return "x" * 1024 * 1024

    definition = defined(long)
    world = a_world(definition)
    receipt = definition.submit(world.rdq, Mail(to="ada"))
    world.sweep()
    assert (world.task(receipt.id).status, world.error(receipt.id).code) == (
        Status.DEAD,
        "task_output_too_large",
    )


# -- calling it ------------------------------------------------------------------------------------


def test_run_calls_the_plain_function_with_or_without_a_context() -> None:
    assert send_email.run(Mail(to="ada")) == Sent(provider_id="ada/1")
    assert defined(zero).run(Mail(to="ada")) == 0


def test_run_gives_a_context_that_nothing_cancels() -> None:
    seen: list[TaskContext] = []

    def look(_mail: Mail, ctx: TaskContext) -> None:
        ctx.heartbeat()
        ctx.check_lease()
        seen.append(ctx)

    defined(look).run(Mail(to="ada"))
    assert json.loads(seen[0].payload)["to"] == "ada"
    assert seen[0].remaining() > timedelta(minutes=59)


def test_an_async_typed_task_runs_in_tests_and_on_hosts() -> None:
    @task("work", queue=QUEUE)
    async def shout(text: str) -> str:
        return text.upper()

    world = a_world(shout)
    receipt = shout.submit(world.rdq, "ada")
    world.sweep()
    assert shout.run("ada") == shout.result(world.rdq, receipt.id).output == "ADA"
