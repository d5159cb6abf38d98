"""How large items get: the state row stays within one write unit whatever happens to its task."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdq_core.domain.lifecycle import Edit, Result
from rdq_core.domain.task import Failure
from rdq_core.errors import InputInvalid
from rdq_core.stores.dynamodb.bodies import MAX_STORED_BYTES
from rdq_core.stores.dynamodb.values import item_size, number
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import HOUR, noise, seen_dead
from tests.dynamodb.world import SHARDS, TABLES, TASK_ID, World, a_failed_attempt
from tests.support.engines import Engine

USUAL: dict[str, Any] = {
    "queue": "payments.settlement.europe",
    "handler_ref": "settle-card-payments",
}
LONG: dict[str, Any] = {
    "queue": "q" * 240,
    "handler_ref": "h" * 240,
    "handler_version": "v" * 256,
    "concurrency_key": "k" * 256,
}


def _whole_life(
    world: World, *, payload: bytes, result: bytes, worker: str, **names: Any
) -> list[int]:
    """Fail, die, be sent back and succeed, with all attributes at their largest: the row's size at
    each step.
    """
    sizes: list[int] = []

    def note() -> None:
        sizes.append(item_size(world.row()))

    world.submit(payload=payload, attempts=(a_failed_attempt(1, world.now, None),), **names)
    note()
    claim = _claim(world, names["queue"])
    note()
    world.store.reschedule(claim, world.failed(claim), Failure("c" * 128), due_at=world.now)
    note()
    claim = _claim(world, names["queue"])
    world.bury(claim, expires_at=world.now + HOUR)
    note()
    entry = seen_dead(world)
    assert item_size(world.items(TABLES.dlq)[TASK_ID, "D"]) <= 1024 or names is LONG
    world.store.redrive(entry, Edit(unpin=False), now=world.now, op_id="o" * 36, shards=SHARDS)
    note()
    claim = _claim(world, names["queue"])
    note()
    attempt = world.succeeded(claim, worker=worker)
    given_result = Result(content=result, content_type="application/json")
    world.store.complete(claim, attempt, given_result, now=world.now, expires_at=world.now + HOUR)
    note()
    read = world.got()
    assert (read.payload, read.result, read.attempts[-1]) == (payload, result, attempt)
    return sizes


def _claim(world: World, queue: str) -> Any:
    return world.store.claim(world.due(queue=queue)[0], world.grant("t" * 22))


@pytest.mark.parametrize(
    ("size", "worker", "result"),
    [
        (0, "host:1", b""),
        (0, "w" * 256, noise(900)),
        (500, "w" * 110, noise(100)),
        (540, "w" * 110, b""),
        (560, "w" * 256, b""),
        (580, "host:1", noise(20)),
        (600, "w" * 256, noise(900)),
        (5000, "w" * 256, noise(3000)),
    ],
    ids=lambda value: str(value if isinstance(value, int) else len(value)),
)
def test_a_row_with_usual_names_stays_within_one_write_unit(
    world: World, size: int, worker: str, result: bytes
) -> None:
    assert (
        max(_whole_life(world, payload=noise(size), result=result, worker=worker, **USUAL)) <= 1024
    )


@pytest.mark.parametrize("size", [0, 300, 900, 5000])
def test_a_row_with_the_longest_names_stays_within_two(world: World, size: int) -> None:
    sizes = _whole_life(world, payload=noise(size), result=noise(300), worker="w" * 256, **LONG)
    assert max(sizes) <= 2048


def test_a_usual_payload_of_500_bytes_is_in_the_row_and_a_larger_one_is_not(world: World) -> None:
    world.submit(payload=noise(500), **USUAL)
    assert world.kinds() == ["T"]
    world.again().submit(payload=noise(1000), **USUAL)
    assert [kind[:2] for kind in world.kinds()] == ["B#", "T"]


def test_an_edit_that_leaves_the_payload_no_room_moves_it_out(world: World) -> None:
    world.dead(payload=noise(580))
    assert not any(kind.startswith("B#") for kind in world.kinds())
    edit = Edit(handler_ref="h" * 240)
    world.store.redrive(seen_dead(world), edit, now=world.now, op_id="op", shards=SHARDS)
    assert (world.got().payload, item_size(world.row()) <= 1024) == (noise(580), True)
    assert any(kind.startswith("B#") for kind in world.kinds())


@pytest.mark.parametrize("size", [1, 1024, 10_240, 102_400, MAX_STORED_BYTES])
def test_every_payload_comes_back_byte_for_byte(anywhere: World, size: int) -> None:
    anywhere.submit(payload=noise(size), headers={"a": "b"})
    assert (anywhere.got().payload, anywhere.got().headers) == (noise(size), {"a": "b"})


def test_what_compresses_is_stored_small(world: World) -> None:
    world.submit(payload=b"abcdefgh" * 131_072, headers={"name": "x" * 5000})
    sizes = [item_size(item) for item in world.items(TABLES.tasks).values()]
    assert max(sizes) < 10_000
    assert world.got().payload == b"abcdefgh" * 131_072


def test_a_payload_that_needs_a_bucket_is_refused_before_any_write(world: World) -> None:
    with FaultScript(world.client) as faults, pytest.raises(InputInvalid) as refused:
        world.submit(payload=noise(MAX_STORED_BYTES + 1))
    assert refused.value.field == "payload"
    assert all(word in str(refused.value) for word in ("262145", "262144", "RDQ_BODY_BUCKET"))
    assert faults.count() == 0


def test_a_result_that_needs_a_bucket_is_refused_before_any_write(world: World) -> None:
    claim = world.claimed()
    result = Result(content=noise(MAX_STORED_BYTES + 1))
    with FaultScript(world.client) as faults, pytest.raises(InputInvalid, match="result"):
        world.store.complete(claim, world.succeeded(claim), result, now=world.now, expires_at=None)
    assert faults.count() == 0


def test_a_long_stack_is_stored_compressed(world: World) -> None:
    claim = world.claimed()
    failed = world.failed(claim)
    assert failed.error is not None
    stack = "".join(
        f'  File "/srv/app/module_{n % 7}.py", line {n}, in call\n    step({n})\n'
        for n in range(500)
    )
    failed = replace(
        failed, error=replace(failed.error, stack=stack, detail={"a": [1]}, unknown={"later": 1})
    )
    world.store.reschedule(
        claim, replace(failed, unknown={"also": "later"}), Failure("x"), due_at=world.now
    )
    assert world.got().attempts == (replace(failed, unknown={"also": "later"}),)
    record = next(
        item for (_, kind), item in world.items(TABLES.dlq).items() if kind.startswith("A#")
    )
    assert item_size(record) < len(stack) / 4


VALUES = st.one_of(
    st.text(max_size=40).map(lambda value: {"S": value}),
    st.binary(max_size=900).map(lambda value: {"B": value}),
    st.integers(-(10**30), 10**30).map(number),
    st.booleans().map(lambda value: {"BOOL": value}),
)


@pytest.fixture
def billed(ministack: Engine) -> Callable[[dict[str, Any]], float]:
    client = World(ministack).client

    def put(item: dict[str, Any]) -> float:
        client.delete_item(TableName=TABLES.audit, Key={name: item[name] for name in ("pk", "sk")})
        answer = client.put_item(TableName=TABLES.audit, Item=item, ReturnConsumedCapacity="TOTAL")
        return float(answer["ConsumedCapacity"]["CapacityUnits"])

    return put


@pytest.mark.ministack
@given(st.dictionaries(st.text("abcdefghij", min_size=1, max_size=9), VALUES, max_size=12))
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_an_item_is_measured_as_it_is_billed(
    billed: Callable[[dict[str, Any]], float], attributes: dict[str, Any]
) -> None:
    item = {"pk": {"S": "x"}, "sk": {"S": "y"}, **attributes}
    assert billed(item) == -(-item_size(item) // 1024)
