"""Months later: TTL has removed whatever had ended, and every live task still finds its body."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.limits import MIB
from rdq_core.domain.task import Status
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Candidate
from rdq_core.errors import RdqError
from rdq_core.handlers.registry import Registry
from rdq_core.ops.garbage import collect
from rdq_core.testing.embedded import Embedded, embedded
from rdq_core.testing.faults import FaultScript
from tests.dynamodb import verbs
from tests.dynamodb.test_claim_check import Checked
from tests.dynamodb.verbs import noise, seen_dead
from tests.dynamodb.world import SHARDS, TABLES, TASK_ID, World

DAY = timedelta(days=1)
LARGE: dict[str, Any] = {"payload": noise(3000)}


def ttl_passes(client: Any, tables: Any, seconds: float) -> None:
    """What TTL removes of both tables, as far as it may have got at this moment."""
    for table in (tables.tasks, tables.dlq):
        for item in client.scan(TableName=table)["Items"]:
            if "expires_at" in item and int(item["expires_at"]["N"]) <= seconds:
                client.delete_item(
                    TableName=table, Key={name: item[name] for name in ("task_id", "kind")}
                )


def after(world: World, days: int) -> None:
    """So many days pass, and TTL with them."""
    for _ in range(days // 20):
        world.clock.advance("20d")
        ttl_passes(world.client, TABLES, world.now.timestamp())


def test_a_task_to_run_in_300_days_finds_its_body_then(world: World) -> None:
    world.submit(next_attempt_at=world.now + 300 * DAY, **LARGE)
    after(world, 320)
    assert world.store.load(world.claim()).payload == LARGE["payload"]


def test_a_task_dead_for_ever_is_sent_back_after_years_with_its_body(world: World) -> None:
    world.dead(**LARGE)
    after(world, 1000)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert world.store.load(world.claim()).payload == LARGE["payload"]


def test_a_task_kept_for_a_year_is_sent_back_on_its_last_day_with_its_body(world: World) -> None:
    world.dead(expires_at=world.now + 365 * DAY, **LARGE)
    after(world, 360)
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    after(world, 20)
    assert world.store.load(world.claim()).payload == LARGE["payload"]


def test_an_edited_body_stays_and_the_one_before_it_goes(world: World) -> None:
    world.dead(expires_at=world.now + 30 * DAY, **LARGE)
    world.store.redrive(
        seen_dead(world), Edit(payload=noise(4000)), now=world.now, op_id="a", shards=SHARDS
    )
    world.bury(world.claim())
    after(world, 100)
    assert sum(kind.startswith("B#") for kind in world.kinds()) == 1
    assert world.got().payload == noise(4000)


# -- a paused queue --------------------------------------------------------------------------------


@pytest.fixture
def local() -> Iterator[Embedded]:
    with embedded({"billing": {"index_shards": 2}}) as rdq:
        yield rdq


def test_a_queue_paused_for_most_of_a_year_loses_no_body(local: Embedded) -> None:
    payloads = {
        local.rdq.submit("billing", "charge", noise(3000 + n)).id: noise(3000 + n) for n in range(3)
    }
    small = local.rdq.submit("billing", "charge", b"small").id
    seen: dict[str, bytes] = {}
    registry = Registry(queues=["billing"])

    def charge(payload: bytes, ctx: TaskContext) -> None:
        seen[ctx.task.id] = payload

    registry.register("charge", charge)
    pause(local, paused=True)
    for _ in range(30):
        local.advance("10d")
        ttl_passes(local.client, local.tables, local.clock.now().timestamp())
        local.drain(registry)
    assert seen == {}
    pause(local, paused=False)
    local.drain(registry)
    assert seen == {**payloads, small: b"small"}


def pause(local: Embedded, *, paused: bool) -> None:
    local.parts.queues.pause("billing", paused=paused, now=local.clock.now())
    local.advance("2s")


# -- one renewal -----------------------------------------------------------------------------------


def overdue(world: World, days: int = 35, **fields: Any) -> Candidate:
    world.submit(**{**LARGE, **fields})
    seen = world.candidate()
    world.clock.advance(days * DAY)
    return seen


def end_of_body(world: World) -> Any:
    (end,) = [
        item["expires_at"]
        for (_, kind), item in world.items(TABLES.tasks).items()
        if kind.startswith("B#")
    ]
    return int(end["N"])


def test_a_renewal_changes_nothing_but_the_bodys_end(world: World) -> None:
    candidate = overdue(world)
    before, index = world.got(), world.due()
    world.store.renew(candidate, now=world.now)
    assert (world.got(), world.due()) == (before, index)
    assert end_of_body(world) == (world.now + 60 * DAY).timestamp() == int(world.row()["be"]["N"])


def test_a_body_is_renewed_once_a_month_and_in_between_costs_a_read(world: World) -> None:
    candidate = overdue(world)
    world.store.renew(candidate, now=world.now)
    world.clock.advance("29d")
    with FaultScript(world.client) as faults:
        world.store.renew(candidate, now=world.now)
        assert [request.operation for request in faults.requests] == ["GetItem"]
        world.clock.advance("2d")
        world.store.renew(candidate, now=world.now)
        assert faults.count("UpdateItem") == 2


@pytest.mark.parametrize(("days", "fields"), [(19, {}), (35, {"payload": b"small"})])
def test_what_needs_no_renewal_is_not_written(
    world: World, days: int, fields: dict[str, Any]
) -> None:
    candidate = overdue(world, days, **fields)
    before = world.everything()
    world.store.renew(candidate, now=world.now)
    assert world.everything() == before


def test_a_task_that_has_ended_since_is_left_alone(world: World) -> None:
    candidate = overdue(world)
    world.store.cancel(TASK_ID, now=world.now, op_id="op", expires_at=world.now + DAY)
    before = world.everything()
    world.store.renew(candidate, now=world.now)
    assert world.everything() == before


def test_a_body_that_stays_for_good_meanwhile_is_given_no_end(world: World) -> None:
    candidate = overdue(world)

    def dies() -> None:
        claim = world.store.claim(world.candidate(), world.grant())
        assert claim is not None
        world.bury(claim, expires_at=None)

    with FaultScript(world.client) as faults:
        faults.interleave(dies, "UpdateItem", at=2)
        world.store.renew(candidate, now=world.now)
    assert "be" not in world.row()
    assert all("expires_at" not in item for item in world.items(TABLES.tasks).values())


def test_content_in_s3_is_renewed_along_with_its_body(world: World) -> None:
    checked = Checked(world)
    candidate = overdue(world, payload=noise(MIB))
    world.store.renew(candidate, now=world.now)
    first, second = checked.stored()
    checked.s3.delete_object(
        Bucket=checked.bucket, Key=min(first, second, key=lambda key: int(key.rsplit("-")[-1]))
    )
    assert world.got().payload == noise(MIB)


# -- crashes ---------------------------------------------------------------------------------------


def renew(world: World) -> verbs.Act:
    candidate = overdue(world)
    return lambda: world.store.renew(candidate, now=world.now)


def redrive_late(world: World) -> verbs.Act:
    world.dead(expires_at=world.now + 50 * DAY, **LARGE)
    world.clock.advance("45d")
    entry = seen_dead(world)
    return lambda: world.store.redrive(entry, NO_EDIT, now=world.now, op_id="op", shards=SHARDS)


def claim_late(world: World) -> verbs.Act:
    candidate = overdue(world)
    grant = world.grant()
    return lambda: world.store.claim(candidate, grant)


TOUCHING_BODIES: tuple[verbs.Prepare, ...] = (
    verbs.submit_outside,
    verbs.complete_outside,
    verbs.dead_letter_for_ever,
    verbs.redrive_edited,
    verbs.purge_all,
    redrive_late,
    claim_late,
    renew,
)


def crashes(world: World, act: verbs.Act, *, at: int, answer: bool) -> bool:
    """The process ends at this request: before it is sent, or after. False when it was done
    before.
    """
    with FaultScript(world.client) as faults:
        if answer:
            faults.lose_answer(nth=at)
        faults.lose_request(nth=at + answer, times=None)
        with contextlib.suppress(RdqError):
            act()
        return faults.count() >= at


def unnamed(world: World) -> Iterator[Any]:
    """Bodies and results that no row names."""
    row = world.items(TABLES.tasks).get((TASK_ID, "T"), {})
    named = {
        f"B#{row['b']['S']}" if "b" in row else "",
        f"R#{row['rr']['S']}" if "rr" in row else "",
    }
    return (
        item for (_, kind), item in world.items(TABLES.tasks).items() if kind not in {"T", *named}
    )


@pytest.mark.parametrize("prepare", TOUCHING_BODIES, ids=verbs.named)
@pytest.mark.parametrize("answer", [False, True], ids=["before", "after"])
def test_a_crash_at_any_request_loses_no_live_body_and_leaves_no_orphan_for_good(
    world: World, prepare: Callable[[World], verbs.Act], answer: bool
) -> None:
    for at in itertools.count(1):
        act = prepare(world.again())
        if not crashes(world, act, at=at, answer=answer):
            return
        task = world.store.get(TASK_ID)
        live = task is not None and not task.status.is_terminal
        assert task is None or len(task.payload) in (0, 3000, 5000, 6000)
        if live and task is not None and task.status is Status.PENDING and "be" in world.row():
            assert int(world.row()["be"]["N"]) <= end_of_named_body(world)
        collect(world.store)
        assert all("expires_at" in item for item in unnamed(world))
        assert world.store.get(TASK_ID) == task


def end_of_named_body(world: World) -> float:
    body = world.items(TABLES.tasks)[TASK_ID, f"B#{world.row()['b']['S']}"]
    return int(body["expires_at"]["N"]) if "expires_at" in body else float("inf")
