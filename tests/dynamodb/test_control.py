"""Queue configuration in the control table: read seldom, read consistently, and not stopped by one
bad item.
"""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.client.rdq import Rdq
from rdq_core.engine.events import Quiet
from rdq_core.errors import ConfigConflict, ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.queues import FRESH_FOR_SUBMITS, FRESH_FOR_SWEEPS
from rdq_core.testing.faults import FaultScript
from tests.support.stores import Dynamo


def declare(dynamo: Dynamo, queue: str = "billing", *, after: int = 0, **declared: Any) -> None:
    dynamo.queues().put_declared(queue, declared, {}, expected_revision=after)


def put(dynamo: Dynamo, queue: str, **attributes: Any) -> None:
    """An item as a person's hand might leave it."""
    dynamo.engine.dynamodb.put_item(
        TableName=dynamo.tables.control,
        Item={"pk": {"S": "queues"}, "sk": {"S": queue}, **attributes},
    )


GARBAGE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "not JSON": {"declared": {"S": "{"}, "file_defaults": {"S": "{}"}, "revision": {"N": "1"}},
    "a list": {"declared": {"S": "[]"}, "file_defaults": {"S": "{}"}, "revision": {"N": "1"}},
    "another type": {"declared": {"N": "1"}, "file_defaults": {"S": "{}"}, "revision": {"N": "1"}},
    "no revision": {
        "declared": {"S": "{}"},
        "file_defaults": {"S": "{}"},
        "revision": {"S": "one"},
    },
    "no number": {
        "declared": {"S": '{"index_shards":"many"}'},
        "file_defaults": {"S": "{}"},
        "revision": {"N": "1"},
    },
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_item_that_nobody_can_read_stops_its_own_queue_only(
    on_dynamodb: Dynamo, garbage: str
) -> None:
    declare(on_dynamodb, "billing")
    put(on_dynamodb, "broken", **GARBAGE[garbage])
    queues = on_dynamodb.queues()

    assert set(queues.all()) == {"billing"}
    assert queues.settings("billing").queue == "billing"
    with pytest.raises(CorruptItem, match="broken"):
        queues.settings("broken")


def test_an_override_that_was_broken_by_hand_is_left_out(on_dynamodb: Dynamo) -> None:
    declare(on_dynamodb, retry={"max_attempts": 2})
    put(
        on_dynamodb,
        "billing",
        declared={"S": '{"retry":{"max_attempts":2}}'},
        file_defaults={"S": "{}"},
        revision={"N": "1"},
        override={"S": '{"retry":{"max_attempts":"lots"}}'},
        override_revision={"N": "1"},
    )

    assert on_dynamodb.queues().settings("billing").retry.max_attempts == 2


@pytest.mark.parametrize("fresh_for", [FRESH_FOR_SWEEPS, FRESH_FOR_SUBMITS])
def test_a_reading_serves_until_it_is_too_old(on_dynamodb: Dynamo, fresh_for: timedelta) -> None:
    client = on_dynamodb.engine.dynamodb
    queues = on_dynamodb.queues(client, fresh_for=fresh_for)
    declare(on_dynamodb, retry={"max_attempts": 2})
    with FaultScript(client) as requests:
        queues.settings("billing")
        declare(on_dynamodb, after=1, retry={"max_attempts": 3})
        on_dynamodb.clock.advance(fresh_for - timedelta(milliseconds=1))
        old = queues.settings("billing")
        on_dynamodb.clock.advance(timedelta(milliseconds=1))
        new = queues.settings("billing")

    assert (old.retry.max_attempts, new.retry.max_attempts) == (2, 3)
    assert [request.operation for request in requests.requests] == ["Query", "Query"]
    assert all(request.params["ConsistentRead"] for request in requests.requests)


def test_a_submitter_reads_its_own_queue_once_a_minute(on_dynamodb: Dynamo) -> None:
    client = on_dynamodb.engine.dynamodb
    queues = on_dynamodb.queues(client, submits_fresh_for=FRESH_FOR_SUBMITS)
    declare(on_dynamodb, retry={"max_attempts": 2})
    declare(on_dynamodb, "email")
    with FaultScript(client) as requests:
        queues.for_submits("billing")
        declare(on_dynamodb, after=1, retry={"max_attempts": 3})
        on_dynamodb.clock.advance(FRESH_FOR_SUBMITS - timedelta(milliseconds=1))
        old = queues.for_submits("billing")
        on_dynamodb.clock.advance(timedelta(milliseconds=1))
        new = queues.for_submits("billing")

    assert (old.retry.max_attempts, new.retry.max_attempts) == (2, 3)
    assert [request.operation for request in requests.requests] == ["GetItem", "GetItem"]
    assert all(request.params["ConsistentRead"] for request in requests.requests)


def test_what_a_sweep_has_read_in_the_same_process_serves_a_submitter_too(
    on_dynamodb: Dynamo,
) -> None:
    client = on_dynamodb.engine.dynamodb
    queues = on_dynamodb.queues(
        client, fresh_for=FRESH_FOR_SWEEPS, submits_fresh_for=FRESH_FOR_SUBMITS
    )
    declare(on_dynamodb)
    with FaultScript(client) as requests:
        queues.settings("billing")
        on_dynamodb.clock.advance("30s")
        queues.for_submits("billing")

    assert [request.operation for request in requests.requests] == ["Query"]


def test_a_submitter_hears_of_a_new_queue_at_once(on_dynamodb: Dynamo) -> None:
    queues = on_dynamodb.queues(submits_fresh_for=FRESH_FOR_SUBMITS)
    with pytest.raises(QueueNotFound):
        queues.for_submits("billing")

    declare(on_dynamodb)

    assert queues.for_submits("billing").revision == 1


def test_a_submitter_hears_at_once_that_a_queue_stays_after_all(on_dynamodb: Dynamo) -> None:
    queues = on_dynamodb.queues(submits_fresh_for=FRESH_FOR_SUBMITS)
    declare(on_dynamodb, owner="one")
    on_dynamodb.queues().begin_delete("billing", now=on_dynamodb.clock.now())
    assert queues.for_submits("billing").deleting
    assert queues.settings("billing").deleting

    declare(on_dynamodb, after=1, owner="one")

    assert not queues.for_submits("billing").deleting


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_submitter_is_told_of_an_item_that_nobody_can_read(
    on_dynamodb: Dynamo, garbage: str
) -> None:
    put(on_dynamodb, "broken", **GARBAGE[garbage])

    with pytest.raises(CorruptItem, match="broken"):
        on_dynamodb.queues().for_submits("broken")


def test_a_tombstone_s_shards_are_still_known(on_dynamodb: Dynamo) -> None:
    declare(on_dynamodb, index_shards=9)
    queues = on_dynamodb.queues()
    now = on_dynamodb.clock.now()

    assert queues.end_delete(queues.begin_delete("billing", now=now), now=now)

    assert queues.shards_ever("billing") == 9
    with pytest.raises(QueueNotFound):
        queues.shards_ever("email")


def test_setting_the_clock_back_makes_nothing_fresh(on_dynamodb: Dynamo) -> None:
    queues = on_dynamodb.queues(fresh_for=FRESH_FOR_SWEEPS)
    declare(on_dynamodb, retry={"max_attempts": 2})
    queues.settings("billing")
    declare(on_dynamodb, after=1, retry={"max_attempts": 3})

    on_dynamodb.clock.step(timedelta(hours=-1))
    on_dynamodb.clock.advance("1s")

    assert queues.settings("billing").retry.max_attempts == 3


def test_an_unknown_queue_is_not_asked_for_again_and_again(on_dynamodb: Dynamo) -> None:
    client = on_dynamodb.engine.dynamodb
    queues = on_dynamodb.queues(client, fresh_for=FRESH_FOR_SWEEPS)
    with FaultScript(client) as requests:
        for _ in range(5):
            with pytest.raises(QueueNotFound):
                queues.settings("billing")

    assert requests.count() == 1


def test_what_somebody_wrote_himself_he_sees_at_once(on_dynamodb: Dynamo) -> None:
    queues = on_dynamodb.queues(fresh_for=FRESH_FOR_SUBMITS)
    assert queues.all() == {}

    queues.put_declared("billing", {}, {}, expected_revision=0)

    assert set(queues.all()) == {"billing"}


def test_many_queues_are_read_page_by_page(on_dynamodb: Dynamo) -> None:
    runbook = "https://wiki.example/" + "x" * 1000
    names = {f"queue-{number}" for number in range(12)}
    for name in sorted(names):
        # Layers of 100 KB each: more than one page of a query takes.
        patterns = [f"{number}-{runbook[:200]}" for number in range(500)]
        declare(on_dynamodb, name, runbook=runbook, classification={"permanent": patterns})

    assert set(on_dynamodb.queues().all()) == names


def test_layers_too_large_for_an_item_are_refused_before_anything_is_written(
    on_dynamodb: Dynamo,
) -> None:
    with pytest.raises(ConfigInvalid, match=r"queues\.billing: is \d+ bytes in all"):
        declare(on_dynamodb, classification={"permanent": ["x" * 250] * 1300})

    assert on_dynamodb.queues().stored("billing") is None


def test_a_write_whose_answer_is_lost_succeeds_once(on_dynamodb: Dynamo) -> None:
    client = on_dynamodb.engine.dynamodb
    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem")
        stored = on_dynamodb.queues(client).put_declared("billing", {}, {}, expected_revision=0)

    assert stored.revision == 1
    assert on_dynamodb.queues().settings("billing").revision == 1


def test_each_step_of_a_deletion_succeeds_once_though_its_answer_is_lost(
    on_dynamodb: Dynamo,
) -> None:
    declare(on_dynamodb)
    client = on_dynamodb.engine.dynamodb
    queues, now = on_dynamodb.queues(client), on_dynamodb.clock.now()
    later = now + timedelta(minutes=7)
    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem")
        seen = queues.begin_delete("billing", now=now)
        faults.lose_answer("UpdateItem")
        assert queues.end_delete(seen, now=later)
        tombstone = queues.stored("billing")
        assert tombstone is not None
        assert (tombstone.deleting_at, tombstone.deleted_at) == (now, later)
        faults.lose_answer("UpdateItem")
        assert queues.reopen(tombstone, now=later + timedelta(days=1))

    assert queues.settings("billing").deleting


def test_an_override_written_in_between_raises_the_shards_for_good(on_dynamodb: Dynamo) -> None:
    """The deploy that was about to write fewer shards reads them again: they must not go down."""
    from rdq_core.config.stored import Override

    declare(on_dynamodb, index_shards=2)
    client = on_dynamodb.engine.dynamodb
    rush = Override(layer={"index_shards": 16}, reason="a rush")
    with FaultScript(client) as faults:
        faults.interleave(
            lambda: on_dynamodb.queues().put_override("billing", rush, expected_revision=0),
            "UpdateItem",
        )
        after = on_dynamodb.queues(client).put_declared(
            "billing", {"index_shards": 3}, {}, expected_revision=1
        )

    assert (after.revision, after.override, after.shards_ever) == (2, rush, 16)
    assert on_dynamodb.queues().stored("billing") == after


def test_of_two_who_declare_a_new_queue_the_first_one_stays(on_dynamodb: Dynamo) -> None:
    client = on_dynamodb.engine.dynamodb
    with FaultScript(client) as faults:
        faults.interleave(lambda: declare(on_dynamodb, owner="faster"), "UpdateItem")
        with pytest.raises(ConfigConflict):
            on_dynamodb.queues(client).put_declared(
                "billing", {"owner": "slower"}, {}, expected_revision=0
            )

    assert on_dynamodb.queues().settings("billing").owner == "faster"


def test_a_deploy_in_between_is_a_conflict_and_stays(on_dynamodb: Dynamo) -> None:
    declare(on_dynamodb, owner="one")
    client = on_dynamodb.engine.dynamodb
    with FaultScript(client) as faults:
        faults.interleave(lambda: declare(on_dynamodb, after=1, owner="faster"), "UpdateItem")
        with pytest.raises(ConfigConflict):
            on_dynamodb.queues(client).put_declared(
                "billing", {"owner": "slower"}, {}, expected_revision=1
            )

    assert on_dynamodb.queues().settings("billing").owner == "faster"


def test_a_deletion_that_begins_in_between_survives_an_override_and_a_pause(
    on_dynamodb: Dynamo,
) -> None:
    from rdq_core.config.stored import Override

    declare(on_dynamodb)
    client = on_dynamodb.engine.dynamodb
    began = on_dynamodb.clock.now()
    over = Override(layer={"retry": {"jitter": 0.5}}, reason="herd")
    with FaultScript(client) as faults:
        faults.interleave(
            lambda: on_dynamodb.queues().begin_delete("billing", now=began), "UpdateItem"
        )
        on_dynamodb.queues(client).put_override("billing", over, expected_revision=0)
    on_dynamodb.queues().pause("billing", paused=True, now=began)

    stored = on_dynamodb.queues().stored("billing")
    assert stored is not None
    assert (stored.deleting_at, stored.override) == (began, over)


def test_a_pause_in_between_survives_a_deploy(on_dynamodb: Dynamo) -> None:
    declare(on_dynamodb)
    client = on_dynamodb.engine.dynamodb
    with FaultScript(client) as faults:
        faults.interleave(
            lambda: on_dynamodb.queues().pause("billing", paused=True, now=on_dynamodb.clock.now()),
            "UpdateItem",
        )
        on_dynamodb.queues(client).put_declared(
            "billing", {"owner": "team"}, {}, expected_revision=1
        )

    assert on_dynamodb.queues().settings("billing").paused


def test_without_an_answer_nothing_old_is_shown(on_dynamodb: Dynamo) -> None:
    declare(on_dynamodb)
    client = on_dynamodb.engine.dynamodb
    queues = on_dynamodb.queues(client)
    queues.settings("billing")
    with FaultScript(client) as faults:
        faults.lose_request(times=None)
        with pytest.raises(StoreFailed):
            queues.settings("billing")


def test_a_program_that_submits_reads_its_queue_s_configuration_once_a_minute(
    on_dynamodb: Dynamo,
) -> None:
    """A new queue takes tasks at once all the same."""
    client = on_dynamodb.engine.dynamodb
    declare(on_dynamodb)
    rdq = Rdq(parts=connect(client, on_dynamodb.tables, events=Quiet(), clock=on_dynamodb.clock))
    with FaultScript(client) as requests:
        for _ in range(3):
            on_dynamodb.clock.advance("19s")
            rdq.submit("billing", "charge", "order")
        with pytest.raises(QueueNotFound):
            rdq.submit("email", "mail", "late")
        declare(on_dynamodb, "email")
        rdq.submit("email", "mail", "in time")

    reads = [
        request
        for request in requests.requests
        if request.params.get("TableName") == on_dynamodb.tables.control
    ]
    keys = [request.params["Key"]["sk"]["S"] for request in reads if request.operation == "GetItem"]
    assert keys == ["billing", "email", "email"]
