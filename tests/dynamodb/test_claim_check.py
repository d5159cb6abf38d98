"""Payloads and results too large for an item go to S3, come back byte for byte, and live as long as
their task.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.domain.limits import MIB
from rdq_core.errors import CorruptItem, Unavailable
from rdq_core.stores.dynamodb.schema import Attr
from tests.dynamodb.verbs import HOUR, noise, seen_dead
from tests.dynamodb.world import FAILURE, SHARDS, TABLES, TASK_ID, World

DAY = timedelta(days=1)
LARGE = noise(MIB)


class Checked:
    """A world whose store has a bucket."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.s3 = world.engine.client("s3")
        # The names of buckets are everybody's, so each account of ministack needs one of its own.
        self.bucket = f"rdq-bodies-{world.engine.access_key}"
        self._empty()
        world.store = world.store_on(world.client, s3=self.s3, body_bucket=self.bucket)

    def stored(self) -> list[str]:
        return sorted(
            each["Key"] for each in self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        )

    def put_at(self) -> datetime:
        """What the engine takes for the present moment."""
        self.s3.put_object(Bucket=self.bucket, Key="clock", Body=b"")
        moment: datetime = self.s3.head_object(Bucket=self.bucket, Key="clock")["LastModified"]
        self.s3.delete_object(Bucket=self.bucket, Key="clock")
        return moment

    def _empty(self) -> None:
        where: Any = {"LocationConstraint": "eu-central-1"}
        try:
            self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration=where)
        except self.s3.exceptions.BucketAlreadyOwnedByYou:
            for key in self.stored():
                self.s3.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture
def checked(anywhere: World) -> Checked:
    return Checked(anywhere)


def test_a_payload_of_a_mebibyte_comes_back_byte_for_byte(checked: Checked) -> None:
    world = checked.world
    claim = world.claimed(payload=LARGE, headers={"a": "b"}, payload_content_type="image/png")
    loaded = world.store.load(claim)
    assert (loaded.payload, loaded.headers, loaded.payload_content_type) == (
        LARGE,
        {"a": "b"},
        "image/png",
    )
    assert (world.got().payload, len(checked.stored())) == (LARGE, 1)
    world.bury(claim)
    assert seen_dead(world).payload_size == MIB


def test_a_result_of_a_mebibyte_comes_back_byte_for_byte(checked: Checked) -> None:
    world = checked.world
    claim = world.claimed()
    attempt = world.succeeded(claim, worker="w" * 200, unknown={"later": 1})
    world.store.complete(
        claim, attempt, Result(content=LARGE), now=world.now, expires_at=world.now + HOUR
    )
    assert (world.got().result, world.got().attempts) == (LARGE, (attempt,))


def test_what_compresses_enough_needs_no_bucket(checked: Checked) -> None:
    checked.world.submit(payload=b"ab" * (MIB // 2))
    assert (checked.stored(), checked.world.got().payload) == ([], b"ab" * (MIB // 2))


@pytest.mark.parametrize(
    ("days", "lifetime"), [(0, "90d/"), (30, "90d/"), (31, "500d/"), (365, "500d/")]
)
def test_an_object_stays_at_least_as_long_as_its_body(
    checked: Checked, days: int, lifetime: str
) -> None:
    checked.world.submit(payload=LARGE, next_attempt_at=checked.world.now + days * DAY)
    assert [key.startswith(lifetime) for key in checked.stored()] == [True]


def test_a_task_that_stays_for_ever_keeps_its_object(checked: Checked) -> None:
    world = checked.world
    world.dead(payload=LARGE)
    assert [key.split("/")[0] for key in checked.stored()] == ["90d", "keep"]
    world.store.redrive(seen_dead(world), NO_EDIT, now=world.now, op_id="op", shards=SHARDS)
    assert world.store.load(world.claim()).payload == LARGE


def test_a_renewed_body_moves_to_where_objects_stay_longer(checked: Checked) -> None:
    world = checked.world
    world.dead(payload=LARGE, expires_at=world.now + 365 * DAY)
    assert [key.split("/")[0] for key in checked.stored()] == ["500d", "90d"]
    assert world.got().payload == LARGE


def test_an_edit_may_bring_a_large_payload_and_a_small_one(checked: Checked) -> None:
    world = checked.world
    world.dead(payload=b"small")
    world.store.redrive(
        seen_dead(world), Edit(payload=LARGE), now=world.now, op_id="a", shards=SHARDS
    )
    assert world.got().payload == LARGE
    world.bury(world.claim())
    world.store.redrive(
        seen_dead(world), Edit(payload=b"small"), now=world.now, op_id="b", shards=SHARDS
    )
    assert (world.got().payload, [key.split("/")[0] for key in checked.stored()]) == (
        b"small",
        ["90d"],
    )


def test_a_purge_takes_the_object_along(checked: Checked) -> None:
    world = checked.world
    world.dead(payload=LARGE)
    world.store.purge(seen_dead(world), now=world.now, op_id="op")
    assert not [key for key in checked.stored() if key.startswith("keep/")]
    assert world.kinds() == []


def test_a_missing_object_is_a_missing_body(checked: Checked) -> None:
    claim = checked.world.claimed(payload=LARGE)
    for key in checked.stored():
        checked.s3.delete_object(Bucket=checked.bucket, Key=key)
    with pytest.raises(CorruptItem, match="body"):
        checked.world.store.load(claim)


def test_a_store_without_the_bucket_says_what_it_lacks(checked: Checked) -> None:
    world = checked.world
    world.submit(payload=LARGE)
    with pytest.raises(Unavailable, match="RDQ_BODY_BUCKET"):
        world.store_on(world.client).get(TASK_ID)


def test_a_bucket_that_does_not_exist_is_named_before_the_task_is_stored(world: World) -> None:
    s3 = world.engine.client("s3")
    world.store = world.store_on(world.client, s3=s3, body_bucket="rdq-nowhere")
    with pytest.raises(Unavailable, match="rdq-nowhere"):
        world.submit(payload=LARGE)
    assert world.items(TABLES.tasks) == {}


def test_smaller_payloads_go_to_the_bucket_when_asked_to(checked: Checked) -> None:
    world = checked.world
    world.store = world.store_on(
        world.client, s3=checked.s3, body_bucket=checked.bucket, s3_above=10_000
    )
    claim = world.claimed(payload=noise(20_000))
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    body = next(
        item for (_, kind), item in world.items(TABLES.tasks).items() if kind.startswith("B#")
    )
    assert (Attr.PAYLOAD in body, world.got().payload) == (False, noise(20_000))
