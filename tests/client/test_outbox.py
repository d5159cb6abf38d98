"""The outbox in an application's own table: nothing is lost in the gap, and nothing is moved on
unseen.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from rdq_core import NewTask, Outbox
from rdq_core.client.outbox import OutboxReport
from rdq_core.errors import ConfigInvalid, InputInvalid, QueueNotFound, StoreFailed
from rdq_core.testing.faults import FaultScript
from tests.engine.world import QUEUE, World
from tests.support.engines import Engine

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "exports"


def the_task(record: Mapping[str, Any]) -> NewTask:
    export = record["export_id"]["S"]
    return NewTask(QUEUE, "export", {"export": export}, key=export)


@pytest.fixture
def client(moto: Engine) -> "DynamoDBClient":
    client = moto.dynamodb
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "export_id", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"}
            for name in ("export_id", "outbox", "written_at")
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "outbox",
                "KeySchema": [
                    {"AttributeName": "outbox", "KeyType": "HASH"},
                    {"AttributeName": "written_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    return client


@pytest.fixture
def outbox(client: "DynamoDBClient") -> Outbox:
    return Outbox(
        client=client,
        table=TABLE,
        index="outbox",
        primary_key=["export_id"],
        mark="outbox",
        order="written_at",
        task_of=the_task,
    )


def written(client: "DynamoDBClient", *exports: str) -> None:
    """Exports that the application has committed, one a minute, and not submitted."""
    for minute, export in enumerate(exports):
        client.put_item(
            TableName=TABLE,
            Item={
                "export_id": {"S": export},
                "outbox": {"S": "pending"},
                "written_at": {"S": f"2026-07-20T12:{minute:02d}"},
            },
        )


def marks(client: "DynamoDBClient") -> dict[str, str]:
    return {
        item["export_id"]["S"]: item["outbox"]["S"]
        for item in client.scan(TableName=TABLE)["Items"]
    }


def test_what_was_committed_and_never_submitted_is_found(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    world = World()
    written(client, "a", "b", "c")
    assert outbox.repair(world.rdq) == OutboxReport(submitted=3)
    assert [world.rdq.get(queue=QUEUE, key=export).handler_ref for export in "abc"] == [
        "export"
    ] * 3
    assert set(marks(client).values()) == {"submitted"}
    assert outbox.repair(world.rdq) == OutboxReport()


def test_it_is_a_reconciler(client: "DynamoDBClient", outbox: Outbox) -> None:
    world = World()
    world.registry.register("export", lambda _export: None)
    world.registry.reconciler("pending-exports")(outbox.repair)
    written(client, "a")
    assert world.sweep().completed == 1


def test_the_application_submits_and_marks_its_own_record(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    world = World()
    written(client, "a")
    record = client.get_item(TableName=TABLE, Key={"export_id": {"S": "a"}})["Item"]
    assert outbox.submit(world.rdq, record).created
    assert marks(client) == {"a": "submitted"}


def test_a_crash_between_submit_and_mark_makes_no_second_task(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    world = World()
    written(client, "a")
    with FaultScript(client) as faults:
        faults.lose_request("UpdateItem")
        with pytest.raises(Exception, match="endpoint"):
            outbox.repair(world.rdq)
    assert marks(client) == {"a": "pending"}
    assert outbox.repair(world.rdq) == OutboxReport(submitted=1)
    assert world.store.counts(QUEUE).pending == 1


def test_a_record_that_was_changed_since_it_was_read_stays(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    world = World()
    written(client, "a")
    with FaultScript(client) as faults:
        faults.interleave(lambda: written(client, "z", "a"), at=2)
        assert outbox.repair(world.rdq) == OutboxReport(overtaken=1)
    assert marks(client)["a"] == "pending"


def test_the_range_is_half_open_and_bounded(client: "DynamoDBClient", outbox: Outbox) -> None:
    written(client, *"abcdef")
    within = dataclasses.replace(
        outbox,
        start="2026-07-20T12:01",
        before=lambda: "2026-07-20T12:05",
        limit=3,
        submitted="done",
    )
    assert within.repair(World().rdq) == OutboxReport(submitted=3)
    assert [export for export, mark in sorted(marks(client).items()) if mark == "done"] == [
        "b",
        "c",
        "d",
    ]
    assert within.repair(World().rdq) == OutboxReport(submitted=1)
    assert marks(client)["f"] == "pending"


def test_a_refused_record_is_marked_and_reported(client: "DynamoDBClient", outbox: Outbox) -> None:
    def task_of(record: Mapping[str, Any]) -> NewTask:
        return dataclasses.replace(
            the_task(record), target="x" * (300 if record["export_id"]["S"] == "a" else 3)
        )

    world = World()
    written(client, "a", "b")
    with pytest.raises(InputInvalid) as refusal:
        dataclasses.replace(outbox, task_of=task_of).repair(world.rdq)
    assert "refused=1" in refusal.value.__notes__[0]
    assert marks(client) == {"a": "refused", "b": "submitted"}


def test_a_record_that_no_task_can_be_made_of_stops_no_other_and_stays(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    def task_of(record: Mapping[str, Any]) -> NewTask:
        if record["export_id"]["S"] == "a":
            raise KeyError("format")
        return the_task(record)

    written(client, "a", "b")
    with pytest.raises(KeyError):
        dataclasses.replace(outbox, task_of=task_of).repair(World().rdq)
    assert marks(client) == {"a": "pending", "b": "submitted"}


def test_records_of_a_queue_that_is_not_configured_yet_stay(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    written(client, "a")
    later = dataclasses.replace(
        outbox, task_of=lambda record: dataclasses.replace(the_task(record), queue="unknown")
    )
    with pytest.raises(QueueNotFound):
        later.repair(World().rdq)
    assert marks(client) == {"a": "pending"}


def test_storage_that_fails_ends_the_walk_at_once(client: "DynamoDBClient", outbox: Outbox) -> None:
    class Down:
        asked = 0

        def submit(self, *_task: object, **_options: object) -> None:
            self.asked += 1
            raise StoreFailed("storage did not answer", may_have_happened=True)

    down = Down()
    written(client, "a", "b")
    with pytest.raises(StoreFailed):
        outbox.repair(down)  # type: ignore[arg-type]
    assert (down.asked, set(marks(client).values())) == (1, {"pending"})


def test_a_task_without_a_name_of_its_own_is_refused(
    client: "DynamoDBClient", outbox: Outbox
) -> None:
    written(client, "a")
    nameless = dataclasses.replace(outbox, task_of=lambda _record: NewTask(QUEUE, "export", 1))
    with pytest.raises(ConfigInvalid, match="key"):
        nameless.repair(World().rdq)
    assert marks(client) == {"a": "pending"}


@pytest.mark.parametrize("options", [{"submitted": "pending"}, {"limit": 0}, {"limit": 5000}])
def test_an_outbox_that_makes_no_sense_is_refused(outbox: Outbox, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        dataclasses.replace(outbox, **options)
