"""What a deploy and an operator see of queue configuration, in the shapes that programs rely on."""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.config.document import parse_document
from rdq_core.config.stored import Override
from rdq_core.errors import QueueNotFound
from rdq_core.ops.queues import Change
from rdq_core.stores.memory_control import MemoryQueues
from rdq_core.testing.contract.factories import a_grant, a_task
from tests.ops.operators import FILE, Operator


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_applying_a_file_creates_changes_or_leaves_each_queue(operator: Operator) -> None:
    first = operator.apply()
    second = operator.apply(FILE.replace("index_shards: 8", "index_shards: 9"))

    assert first == [
        {"queue": "billing", "result": "created", "revision": 1},
        {"queue": "email", "result": "created", "revision": 1},
    ]
    assert second == [
        {"queue": "billing", "result": "unchanged", "revision": 1},
        {"queue": "email", "result": "changed", "revision": 2},
    ]


def test_changed_defaults_change_every_queue_of_the_file(operator: Operator) -> None:
    operator.apply()

    results = operator.apply(FILE.replace("max_attempts: 4", "max_attempts: 5"))

    assert [line["result"] for line in results] == ["changed", "changed"]


def test_queues_that_a_file_does_not_name_stay(operator: Operator) -> None:
    operator.apply()

    operator.apply("config_version: 1\nqueues: {sms: {}}")

    assert [line["queue"] for line in operator.reader.list()["items"]] == [
        "billing",
        "email",
        "sms",
    ]


def test_a_queue_that_another_writer_changes_meanwhile_is_a_conflict_and_the_others_are_applied(
    operator: Operator,
) -> None:
    operator.apply()
    queues = operator.queues

    class WritesFirst(MemoryQueues):
        """Somebody who writes `billing` just before we do."""

        def put_declared(
            self, queue: str, declared: Any, file_defaults: Any, *, expected_revision: int
        ) -> Any:
            if queue == "billing":
                queues.put_declared("billing", {"owner": "them"}, {}, expected_revision=1)
            return queues.put_declared(
                queue, declared, file_defaults, expected_revision=expected_revision
            )

        stored = queues.stored

    applied = operator.editor(WritesFirst(clock=operator.clock)).apply(
        parse_document(FILE.replace("team-payments", "us").replace("index_shards: 8", "owner: us"))
    )

    assert [(line.queue, line.result, line.revision) for line in applied] == [
        ("billing", Change.CONFLICT, 2),
        ("email", Change.CHANGED, 2),
    ]
    assert "at revision 2, and you have read revision 1" in applied[0].as_dict()["error"]["message"]
    assert queues.settings("billing").owner == "them"


def test_an_override_that_a_file_contradicts_is_reported(operator: Operator) -> None:
    operator.apply()
    slow = Override(layer={"execution": {"heartbeat": "20s"}}, reason="slow disk")
    operator.queues.put_override("billing", slow, expected_revision=0)

    results = operator.apply(
        FILE.replace("owner: team-payments", "execution: {lease: 10s, handler_timeout: 9s}")
    )

    assert results[0] == {
        "queue": "billing",
        "result": "changed",
        "revision": 2,
        "override_suspended": True,
    }


def test_one_queue_shows_its_layers_and_what_they_come_to(operator: Operator) -> None:
    operator.apply()
    until = operator.clock.now() + timedelta(hours=2)
    over = Override(layer={"retry": {"jitter": 0.5}}, reason="thundering herd", expires_at=until)
    operator.queues.put_override("billing", over, expected_revision=0)
    operator.queues.pause("billing", paused=True, now=operator.clock.now())

    shown = operator.reader.get("billing")

    effective = shown.pop("effective")
    assert shown == {
        "queue": "billing",
        "revision": 1,
        "declared": {"owner": "team-payments"},
        "file_defaults": {"retry": {"max_attempts": 4}},
        "override": {
            "revision": 1,
            "layer": {"retry": {"jitter": 0.5}},
            "reason": "thundering herd",
            "expires_at": "2026-07-20T14:00:00.000Z",
            "in_force": True,
            "suspended": False,
        },
        "paused": True,
        "paused_at": "2026-07-20T12:00:00.000Z",
        "pause_reason": None,
        "deleting_at": None,
        "shards_ever": 4,
    }
    assert (effective["retry"]["max_attempts"], effective["retry"]["jitter"]) == (4, 0.5)


def test_an_override_that_is_over_is_shown_as_not_in_force(operator: Operator) -> None:
    operator.apply()
    over = Override(
        layer={"retry": {"jitter": 0.5}}, reason="herd", expires_at=operator.clock.now()
    )
    operator.queues.put_override("billing", over, expected_revision=0)

    assert operator.reader.get("billing")["override"]["in_force"] is False


def test_a_queue_that_is_not_configured_is_refused_with_the_nearest_name(
    operator: Operator,
) -> None:
    operator.apply()

    for ask in (operator.reader.get, operator.reader.stats):
        with pytest.raises(QueueNotFound) as refused:
            ask("biling")
        assert refused.value.hint == "did you mean billing?"


def test_the_list_is_by_name_and_shows_how_queues_differ(operator: Operator) -> None:
    operator.apply()

    listed = operator.reader.list()

    assert listed["next_cursor"] is None
    assert [item["queue"] for item in listed["items"]] == ["billing", "email"]
    assert listed["items"][0] == {
        "queue": "billing",
        "owner": "team-payments",
        "runbook": None,
        "revision": 1,
        "paused": False,
        "deleting": False,
        "override": None,
        "host": "worker",
        "max_attempts": 4,
        "index_shards": 4,
    }


def test_stats_count_and_say_how_long_the_oldest_has_been_due(operator: Operator) -> None:
    operator.apply()
    for _ in range(3):
        operator.store.submit(a_task(), shards=1)
    (first, *_), grant = (
        operator.store.candidates("billing", 0, until=operator.clock.now(), limit=1).items,
        a_grant(operator.clock.now()),
    )
    operator.store.claim(first, grant)
    operator.clock.advance("90s")

    assert operator.reader.stats("billing") == {
        "queue": "billing",
        "pending": 2,
        "in_flight": 1,
        "dead": 0,
        "oldest_due_at": "2026-07-20T12:00:00.000Z",
        "oldest_pending_age_seconds": 90.0,
        "paused": False,
        "exact": True,
    }


def test_stats_of_work_that_is_not_due_yet_have_no_age_to_show(operator: Operator) -> None:
    operator.apply()
    operator.store.submit(
        a_task(next_attempt_at=operator.clock.now() + timedelta(hours=1)), shards=1
    )

    assert operator.reader.stats("billing")["oldest_pending_age_seconds"] == 0


def test_stats_of_an_empty_queue_have_neither_time_nor_age(operator: Operator) -> None:
    operator.apply()

    stats = operator.reader.stats("billing")

    assert (stats["oldest_due_at"], stats["oldest_pending_age_seconds"]) == (None, None)
