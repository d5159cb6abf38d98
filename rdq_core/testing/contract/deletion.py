"""The contract of deletions of queues, and of restoring a queue."""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.config.stored import StoredQueue
from rdq_core.engine.ports import QueueStore
from rdq_core.errors import ConfigConflict, QueueNotFound
from rdq_core.testing.contract.factories import NOW
from rdq_core.testing.contract.queues import SLOW, declare

LATER = NOW + timedelta(minutes=7)
MUCH_LATER = NOW + timedelta(days=2)


def leaving(queues: QueueStore, **declared: Any) -> StoredQueue:
    """The queue `billing`, declared like this, while it is being deleted."""
    declare(queues, **declared)
    return queues.begin_delete("billing", now=NOW)


def a_tombstone(queues: QueueStore, **declared: Any) -> StoredQueue:
    """The tombstone of the queue `billing`, which was declared like this and then deleted."""
    assert queues.end_delete(leaving(queues, **declared), now=LATER)
    stored = queues.stored("billing")
    assert stored is not None
    return stored


class DeletionContract:
    """A deletion has two steps; each succeeds once, for a caller that has read the step before.

    Fixture: `queues`.
    """

    def test_a_queue_that_is_being_deleted_keeps_its_settings_and_says_so(
        self, queues: QueueStore
    ) -> None:
        stored = leaving(queues, retry={"max_attempts": 9})

        settings = queues.settings("billing")
        assert (stored.deleting_at, settings.deleting, settings.retry.max_attempts) == (
            NOW,
            True,
            9,
        )
        assert set(queues.all()) == {"billing"}

    def test_deleting_again_does_not_begin_again(self, queues: QueueStore) -> None:
        leaving(queues)

        again = queues.begin_delete("billing", now=LATER)

        assert again.deleting_at == NOW

    def test_a_queue_that_is_not_there_cannot_be_deleted(self, queues: QueueStore) -> None:
        with pytest.raises(QueueNotFound):
            queues.begin_delete("billing", now=NOW)

        assert queues.stored("billing") is None

    def test_a_tombstone_is_no_queue_any_more(self, queues: QueueStore) -> None:
        stored = a_tombstone(queues)

        assert (stored.is_deleted, stored.deleted_at, queues.all()) == (True, LATER, {})
        assert set(queues.all_stored()) == {"billing"}
        for ask in (queues.settings, queues.for_submits):
            with pytest.raises(QueueNotFound, match="was deleted at 2035-07-20T12:07"):
                ask("billing")

    def test_a_tombstone_is_neither_paused_nor_overridden_nor_deleted(
        self, queues: QueueStore
    ) -> None:
        before = a_tombstone(queues)

        with pytest.raises(QueueNotFound):
            queues.pause("billing", paused=True, now=LATER)
        with pytest.raises(QueueNotFound):
            queues.put_override("billing", SLOW, expected_revision=0)
        with pytest.raises(QueueNotFound):
            queues.begin_delete("billing", now=MUCH_LATER)

        assert queues.stored("billing") == before

    def test_a_queue_made_anew_keeps_its_shards_and_nothing_that_people_had_set(
        self, queues: QueueStore
    ) -> None:
        declare(queues, index_shards=16)
        queues.put_override("billing", SLOW, expected_revision=0)
        queues.pause("billing", paused=True, now=NOW, reason="the bank is down")
        queues.end_delete(queues.begin_delete("billing", now=NOW), now=LATER)

        after = declare(queues, index_shards=2)

        assert (after.shards_ever, after.override, after.paused_at, after.is_leaving) == (
            16,
            None,
            None,
            False,
        )
        assert queues.stored("billing") == after
        assert queues.settings("billing").shards_ever == 16

    def test_revisions_go_on_where_those_of_the_deleted_queue_ended(
        self, queues: QueueStore
    ) -> None:
        declare(queues, owner="one")
        queues.end_delete(queues.begin_delete("billing", now=NOW), now=LATER)

        after = declare(queues, owner="two")

        assert after.revision == 2
        with pytest.raises(ConfigConflict):
            declare(queues, after=1, owner="who knew the old one")

    def test_declaring_a_queue_that_is_being_deleted_keeps_it_with_all_that_people_had_set(
        self, queues: QueueStore
    ) -> None:
        declare(queues, owner="one")
        queues.put_override("billing", SLOW, expected_revision=0)
        queues.pause("billing", paused=True, now=NOW)
        queues.begin_delete("billing", now=NOW)

        after = declare(queues, after=1, owner="one")

        assert (after.is_leaving, after.override, after.paused_at, after.revision) == (
            False,
            SLOW,
            NOW,
            2,
        )
        assert queues.stored("billing") == after

    def test_a_queue_that_was_declared_again_is_not_deleted_by_a_host_that_saw_it_empty(
        self, queues: QueueStore
    ) -> None:
        seen = leaving(queues, owner="one")
        declare(queues, after=1, owner="one")

        assert not queues.end_delete(seen, now=LATER)

        assert not queues.settings("billing").deleting

    def test_of_two_deletions_only_the_one_that_was_seen_is_ended(self, queues: QueueStore) -> None:
        seen = leaving(queues, owner="one")
        declare(queues, after=1, owner="one")
        queues.begin_delete("billing", now=LATER)

        assert not queues.end_delete(seen, now=LATER)

        assert queues.settings("billing").deleting

    def test_a_tombstone_keeps_the_time_at_which_it_was_made(self, queues: QueueStore) -> None:
        seen = leaving(queues)
        queues.end_delete(seen, now=LATER)

        assert not queues.end_delete(seen, now=MUCH_LATER)

        stored = queues.stored("billing")
        assert stored is not None
        assert stored.deleted_at == LATER

    def test_a_tombstone_that_is_opened_is_being_deleted_from_then_on(
        self, queues: QueueStore
    ) -> None:
        tombstone = a_tombstone(queues, retry={"max_attempts": 9})

        assert queues.reopen(tombstone, now=MUCH_LATER)

        stored = queues.stored("billing")
        assert stored is not None
        assert (stored.deleting_at, stored.is_deleted) == (MUCH_LATER, False)
        assert (
            queues.settings("billing").deleting,
            queues.settings("billing").retry.max_attempts,
        ) == (True, 9)

    def test_only_the_tombstone_that_was_seen_is_opened(self, queues: QueueStore) -> None:
        tombstone = a_tombstone(queues)
        declare(queues)

        assert not queues.reopen(tombstone, now=MUCH_LATER)
        assert not queues.reopen(declare(queues, after=2), now=MUCH_LATER)

        assert not queues.settings("billing").deleting

    def test_of_hosts_that_would_look_at_the_same_time_one_looks(self, queues: QueueStore) -> None:
        first = leaving(queues)

        assert [queues.note_look(first, now=LATER) for _ in range(2)] == [True, False]

        second = queues.stored("billing")
        assert second is not None
        assert [queues.note_look(second, now=MUCH_LATER) for _ in range(2)] == [True, False]
        assert not queues.note_look(first, now=MUCH_LATER)

    def test_a_pause_keeps_its_reason_and_a_resume_takes_it(self, queues: QueueStore) -> None:
        declare(queues)

        paused = queues.pause("billing", paused=True, now=NOW, reason="the bank is down")
        assert (paused.paused_at, paused.pause_reason) == (NOW, "the bank is down")
        assert queues.stored("billing") == paused

        without = queues.pause("billing", paused=True, now=NOW)
        resumed = queues.pause("billing", paused=False, now=NOW)
        assert (without.pause_reason, resumed.pause_reason, resumed.paused_at) == (None, None, None)
