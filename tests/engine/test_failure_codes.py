"""Every failure code that can occur in one process, with its error type."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rdq_core import Abort, TaskContext
from rdq_core.client.rdq import Rdq
from rdq_core.domain.attempt import TYPE_OF_CODE, Code
from rdq_core.engine.stopping import Stop
from rdq_core.errors import CorruptItem, LeaseLost, RdqError, StoreFailed
from rdq_core.handlers.registry import Registry
from rdq_core.stores.dynamodb.schema import Tables
from rdq_core.stores.memory import MemoryStore
from tests.engine.world import NOW_ONLY, QUEUE, World, raises
from tests.handlers.mail import Mail, send_email

# -- stored on the task ----------------------------------------------------------------------------


def not_registered(world: World) -> str:
    return world.submit(ref="misspelt")


def version_mismatch(world: World) -> str:
    world.configure(index_shards=1, version_mismatch="dead-letter")
    world.handler(lambda _order: None, version="v2")
    return world.submit(handler_version="v1")


def attempts_exhausted(world: World) -> str:
    world.handler(raises(ConnectionError("down")))
    task_id = world.submit()
    world.sweep()
    world.configure(index_shards=1, retry={"max_attempts": 1})
    world.clock.advance("1m")
    return task_id


def lease_expired(world: World) -> str:
    world.configure(index_shards=1, retry={"max_attempts": 1})
    task_id = world.submit()
    (candidate,) = world.store.candidates(QUEUE, 0, until=world.clock.now(), limit=1).items
    gone = world.claimer()
    gone.take(candidate, world.queues.settings(QUEUE))
    world.clock.advance("2m")
    return task_id


def timeout(world: World) -> str:
    world.configure(index_shards=1, retry={"max_attempts": 1}, execution={"handler_timeout": "20s"})

    def overruns(_order: str, ctx: TaskContext) -> None:
        world.clock.advance("20s")
        ctx.wait(10)

    world.handler(overruns)
    return world.submit()


def crashes(world: World) -> str:
    world.configure(index_shards=1, retry={"max_attempts": 1})
    world.handler(raises(SystemExit(3)))
    return world.submit()


def fails(world: World) -> str:
    world.configure(index_shards=1, retry={"max_attempts": 1})
    world.handler(raises(ConnectionError("down")))
    return world.submit()


def input_invalid(world: World) -> str:
    world.registry.add(send_email)
    return world.submit(b"{}", ref="send-email")


def output_invalid(world: World) -> str:
    world.handler(lambda _order: {1, 2})
    return world.submit()


def output_too_large(world: World) -> str:
    world.handler(lambda _order: b"x" * (1024 * 1024 + 1))
    return world.submit()


def outcome_unknown(world: World) -> str:
    world.configure(index_shards=1, retry={"max_attempts": 1})
    world.handler(lambda _order: None, outcome=lambda _value, _error: "fine")
    return world.submit()


def an_applications_own(world: World) -> str:
    world.handler(raises(Abort("card_declined")))
    return world.submit()


def an_applications_bad_one(world: World) -> str:
    world.handler(raises(Abort("Card declined!")))
    return world.submit()


class LosesABody(MemoryStore):
    """A store in which somebody has removed a payload."""

    def load(self, claim: Any) -> Any:
        raise CorruptItem("the body is missing", task_id=claim.task.id)


def body_missing(world: World) -> str:
    world.store = LosesABody(clock=world.clock, ids=world.ids)
    world.parts = replace(world.parts, store=world.store)
    world.rdq = Rdq(parts=world.parts)
    return world.submit()


STORED: dict[Callable[[World], str], str] = {
    not_registered: "task_not_registered",
    version_mismatch: "task_version_mismatch",
    attempts_exhausted: "task_attempts_exhausted",
    lease_expired: "task_lease_expired",
    timeout: "task_timeout",
    crashes: "task_handler_panicked",
    fails: "task_failed",
    input_invalid: "task_input_invalid",
    output_invalid: "task_output_invalid",
    output_too_large: "task_output_too_large",
    outcome_unknown: "task_outcome_unknown",
    body_missing: "task_store_failed",
    an_applications_own: "card_declined",
    an_applications_bad_one: "task_failed",
}


@pytest.mark.parametrize("scenario", STORED, ids=lambda scenario: scenario.__name__)
def test_a_task_dies_with_the_code_and_its_type(scenario: Callable[[World], str]) -> None:
    world = World()
    task_id = scenario(world)
    assert world.sweep().dead_lettered == 1
    failure = world.task(task_id).failure
    assert failure is not None
    code = STORED[scenario]
    assert failure.code == code
    if code in TYPE_OF_CODE:
        assert failure.type == TYPE_OF_CODE[code]


def test_a_task_that_a_stopping_worker_gave_back_says_so_until_its_next_claim() -> None:
    world, stop = World(), Stop()

    def heeds(_order: str, ctx: TaskContext) -> None:
        stop.request()
        ctx.wait(10)
        ctx.check_lease()

    world.handler(heeds)
    task_id = world.submit()
    assert world.sweep(NOW_ONLY, stop).released == 1
    failure = world.task(task_id).failure
    assert failure is not None
    assert failure.code == "worker_shutdown"


NOT_IN_ONE_PROCESS = {Code.UNAVAILABLE}
"""Stored only for a handler function that can't be reached; raised below."""


def test_no_code_is_left_out() -> None:
    assert set(Code) - set(STORED.values()) == {Code.WORKER_SHUTDOWN, *NOT_IN_ONE_PROCESS}


# -- raised to the caller --------------------------------------------------------------------------


def unregistered_definition(world: World) -> object:
    return send_email.submit(Rdq(parts=world.parts, registry=Registry()), Mail(to="ada"))


def bad_input(world: World) -> object:
    return world.submit({1, 2})


def output_of_another_type(world: World) -> object:
    world.handler(lambda _order: 5, ref="send-email")
    task_id = world.submit(ref="send-email")
    world.sweep()
    return send_email.result(world.rdq, task_id)


def no_environment(_world: World) -> object:
    return Tables.from_env({})


def no_task(world: World) -> object:
    return world.rdq.get("0" * 26)


def an_end_twice(world: World) -> object:
    task_id = world.submit()
    world.rdq.cancel(task_id)
    return world.rdq.cancel(task_id)


def a_lease_lost(world: World) -> object:
    seen: list[LeaseLost] = []

    def handler(_order: str, ctx: TaskContext) -> None:
        world.rdq.cancel(ctx.task.id)
        try:
            ctx.heartbeat()
        except LeaseLost as lost:
            seen.append(lost)

    world.handler(handler)
    world.submit()
    world.sweep()
    raise seen[0]


class Down(MemoryStore):
    """A store that does not answer."""

    def submit(self, *_args: Any, **_options: Any) -> Any:
        raise StoreFailed("storage did not answer", may_have_happened=True)


def storage_down(world: World) -> object:
    return Rdq(parts=replace(world.parts, store=Down(clock=world.clock, ids=world.ids))).submit(
        QUEUE, "charge", 1
    )


def unknown_queue(world: World) -> object:
    return world.submit(queue="unknown")


def bad_configuration(world: World) -> object:
    return world.registry.classify(ConnectionError, "sometimes")  # type: ignore[func-returns-value]


def a_stale_deploy(world: World) -> object:
    return world.queues.put_declared(QUEUE, {"index_shards": 2}, {}, expected_revision=7)


RAISED: dict[Callable[[World], object], str] = {
    unregistered_definition: "task_not_registered",
    bad_input: "task_input_invalid",
    output_of_another_type: "task_output_invalid",
    no_environment: "task_unavailable",
    no_task: "task_not_found",
    an_end_twice: "task_conflict",
    a_lease_lost: "task_lease_lost",
    storage_down: "task_store_failed",
    unknown_queue: "queue_not_found",
    bad_configuration: "config_invalid",
    a_stale_deploy: "config_conflict",
}


@pytest.mark.parametrize("scenario", RAISED, ids=lambda scenario: scenario.__name__)
def test_the_caller_gets_the_code(scenario: Callable[[World], object]) -> None:
    with pytest.raises(RdqError) as raised:
        scenario(World())
    assert raised.value.code == RAISED[scenario]
    assert json.dumps(raised.value.as_dict())


def test_every_kind_of_error_is_met() -> None:
    """But for a stale cursor, which only lists can meet, and a corrupt item, which is stored and
    reported.
    """
    codes = {
        kind.default_code
        for kind in RdqError.__subclasses__()
        if kind.__module__ == RdqError.__module__
    }
    assert codes - set(RAISED.values()) == {"stale_cursor"}
