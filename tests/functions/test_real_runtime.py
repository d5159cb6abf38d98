"""Functions behind AWS's own runtime client: what a sweep makes of what really comes back."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdq_core.config.settings import Host
from rdq_core.domain.attempt import Code, Outcome
from rdq_core.domain.task import Status
from rdq_core.handlers.aws_lambda import LambdaInvoker
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import create_tables
from rdq_core.testing.moto import AtomicMotoServer
from tests.engine.world import World
from tests.support.engines import Engine
from tests.support.runtime_api import RealFunction
from tests.support.stores import TABLES

pytestmark = pytest.mark.slow

RAW = {"function": "charge-fn"}
ENVELOPE = {"function": "charge-fn", "deliver": "envelope"}


def world_with(function: RealFunction, target: dict[str, Any] = RAW, **config: Any) -> World:
    world = World(handlers={"charge": target}, **config)
    world.host = Host.SWEEPER
    invoker = LambdaInvoker(lambda _seconds: function, on_error=world.told.on_error)
    world.parts = replace(world.parts, invoker=lambda: invoker)
    return world


def swept(world: World) -> str:
    task_id = world.submit(b'{"id":"7"}', content_type="application/json")
    world.sweep()
    return task_id


def test_what_rides_beside_a_payload_reaches_a_function(tmp_path: Path) -> None:
    code = (
        "def handler(event, context):\n    return [event, context.client_context.custom['rdq']]\n"
    )
    with RealFunction(tmp_path, code) as function:
        world = world_with(function)
        task_id = swept(world)
    event, told = json.loads(world.task(task_id).result or b"")
    assert (event, told["task_id"], told["attempt_no"]) == ({"id": "7"}, task_id, 1)


def test_an_exception_is_kept_as_the_runtime_tells_it(tmp_path: Path) -> None:
    code = (
        "class CardDeclined(Exception): ...\n\n"
        "def handler(event, context):\n    raise CardDeclined('no funds')\n"
    )
    with RealFunction(tmp_path, code) as function:
        world = world_with(function, classification={"permanent": ["CardDeclined"]})
        task_id = swept(world)
    (attempt,) = world.attempts(task_id)
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error.type, attempt.error.message) == (
        Outcome.PERMANENT_FAILURE,
        "CardDeclined",
        "no funds",
    )
    assert "line 4, in handler" in str(attempt.error.stack)


def test_a_function_that_exits_has_crashed(tmp_path: Path) -> None:
    with RealFunction(
        tmp_path, "import os\n\ndef handler(event, context):\n    os._exit(3)\n"
    ) as function:
        world = world_with(function)
        task_id = swept(world)
    assert world.error(task_id).code == Code.HANDLER_PANICKED


STUCK = """
import threading
from dataclasses import replace
from rdq_core import Rdq, lambda_handler
from rdq_core.runtime.system import SystemSleeper
from rdq_core.testing.embedded import in_memory

rdq = Rdq(parts=replace(in_memory({}).parts, busy=SystemSleeper()))
handler = lambda_handler(rdq, "charge", lambda order: threading.Event().wait())
"""


def test_the_process_of_a_handler_that_ignores_its_time_ends(tmp_path: Path) -> None:
    with RealFunction(tmp_path, STUCK, seconds=3) as function:
        world = world_with(function, ENVELOPE)
        task_id = swept(world)
        assert not function.is_running
    assert world.attempts(task_id)[0].outcome is Outcome.RETRYABLE_FAILURE


GUARDED = """
import os
from rdq_core import Done, Rdq

rdq = Rdq.from_env()

@rdq.guard("billing", "charge", on=ConnectionError, key=lambda order: order["id"])
def charge(order):
    if os.path.exists("down"):
        raise ConnectionError("the bank does not answer")
    return "paid"

def handler(event, context):
    answer = charge(event)
    return {"done": answer.value} if isinstance(answer, Done) else {"deferred": answer.id}
"""


def test_a_function_that_guards_and_is_its_own_handler_says_done_only_for_what_is_done(
    moto: Engine, tmp_path: Path
) -> None:
    create_tables(moto.dynamodb, TABLES)
    parts = connect(moto.dynamodb, TABLES)
    parts.queues.put_declared(
        "billing",
        {"handlers": {"charge": RAW}, "retry": {"initial_backoff": "1ms"}},
        {},
        expected_revision=0,
    )
    with AtomicMotoServer() as server:
        reach = {
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        with RealFunction(tmp_path, GUARDED, environ={**TABLES.as_env(), **reach}) as function:
            (tmp_path / "down").touch()
            deferred = json.loads(function.invoke(Payload=b'{"id":"7"}')["Payload"].read())[
                "deferred"
            ]
            assert "FunctionError" in function.invoke(
                Payload=b'{"id":"7"}', ClientContext=_delivery()
            )
            (tmp_path / "down").unlink()
            again = function.invoke(Payload=b'{"id":"7"}', ClientContext=_delivery())
            assert json.loads(again["Payload"].read()) == {"done": "paid"}
    stored = parts.store.get(deferred)
    assert stored is not None
    assert (stored.status, len(stored.attempts)) == (Status.PENDING, 1)


def _delivery() -> str:
    """A client context as a sweep sends it."""
    return base64.b64encode(json.dumps({"custom": {"rdq": {"task_id": "1"}}}).encode()).decode()
