"""What every store of queue configuration promises.

Each layer has a revision, and a write changes only the queues and layers that it names.
"""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from rdq_core.config.stored import Override, StoredQueue
from rdq_core.engine.ports import QueueStore
from rdq_core.errors import ConfigConflict, ConfigInvalid, InputInvalid, QueueNotFound
from rdq_core.testing.contract.bench import side_by_side
from rdq_core.testing.contract.factories import NOW

TWO_ATTEMPTS: dict[str, Any] = {"retry": {"max_attempts": 2}}
NINE_ATTEMPTS: dict[str, Any] = {"retry": {"max_attempts": 9}}
SLOW = Override(layer={"retry": {"initial_backoff": "30s"}}, reason="the bank is slow today")


def declare(
    queues: QueueStore, queue: str = "billing", *, after: int = 0, **declared: Any
) -> StoredQueue:
    """Declare a queue as a caller that has read the revision `after`."""
    return queues.put_declared(queue, declared, {}, expected_revision=after)


class QueueContract:
    """A write is based on what its writer read, and changes nothing that it doesn't name.

    Fixture: `queues`.
    """

    def test_what_is_declared_is_effective_and_has_revision_one(self, queues: QueueStore) -> None:
        stored = declare(queues, **TWO_ATTEMPTS)

        settings = queues.settings("billing")
        assert (stored.revision, settings.revision, settings.retry.max_attempts) == (1, 1, 2)

    def test_an_unconfigured_queue_is_not_taken_for_one_with_a_similar_name(
        self, queues: QueueStore
    ) -> None:
        declare(queues, "billing")

        with pytest.raises(QueueNotFound) as refused:
            queues.settings("biling")

        assert refused.value.hint == "did you mean billing?"
        assert queues.stored("biling") is None

    def test_without_any_queue_the_hint_says_what_to_do(self, queues: QueueStore) -> None:
        with pytest.raises(QueueNotFound) as refused:
            queues.settings("billing")

        assert "queue apply" in str(refused.value.hint)
        assert queues.all() == {}

    def test_a_write_raises_the_revision_by_one(self, queues: QueueStore) -> None:
        declare(queues, **TWO_ATTEMPTS)

        declare(queues, after=1, **NINE_ATTEMPTS)

        settings = queues.settings("billing")
        assert (settings.revision, settings.retry.max_attempts) == (2, 9)

    def test_writing_what_is_declared_already_is_no_new_revision(self, queues: QueueStore) -> None:
        declare(queues, **TWO_ATTEMPTS)

        again = declare(queues, after=1, **TWO_ATTEMPTS)

        assert again.revision == 1

    def test_a_write_that_is_repeated_because_its_answer_was_lost_is_no_conflict(
        self, queues: QueueStore
    ) -> None:
        declare(queues, **TWO_ATTEMPTS)

        again = declare(queues, after=0, **TWO_ATTEMPTS)

        assert again.revision == 1

    def test_owners_stay_with_a_queue_for_as_long_as_it_is_declared(
        self, queues: QueueStore
    ) -> None:
        seen = declare(queues, **TWO_ATTEMPTS)

        assert queues.put_owners(seen, ("stack-a", "stack-b"))

        assert not queues.put_owners(seen, ("stack-c",))
        again = declare(queues, after=2, owner="team")
        assert (again.owners, again.revision) == (("stack-a", "stack-b"), 3)
        queues.begin_delete("billing", now=NOW)
        assert declare(queues, after=3).owners == ()

    def test_a_stale_writer_gets_a_conflict_that_shows_both_revisions(
        self, queues: QueueStore
    ) -> None:
        declare(queues, **TWO_ATTEMPTS)
        declare(queues, after=1, **NINE_ATTEMPTS)

        with pytest.raises(ConfigConflict, match=r"at revision 2, .* read revision 1") as refused:
            declare(queues, after=1, owner="team-payments", retry={"max_attempts": 3})

        assert queues.settings("billing").retry.max_attempts == 9
        assert 'retry.max_attempts is 9, yours 3, owner is unset, yours "team-payments"' in str(
            refused.value.hint
        )

    def test_a_writer_who_thinks_that_the_queue_is_new_is_stale_as_well(
        self, queues: QueueStore
    ) -> None:
        declare(queues, **TWO_ATTEMPTS)

        with pytest.raises(ConfigConflict, match=r"at revision 1, .* read revision 0"):
            declare(queues, **NINE_ATTEMPTS)

    def test_a_writer_of_a_queue_that_was_never_there_is_stale(self, queues: QueueStore) -> None:
        with pytest.raises(ConfigConflict, match=r"at revision 0, .* read revision 3"):
            declare(queues, after=3)

        assert queues.stored("billing") is None

    def test_the_file_s_defaults_belong_to_the_queues_that_it_declared(
        self, queues: QueueStore
    ) -> None:
        queues.put_declared("billing", {}, NINE_ATTEMPTS, expected_revision=0)
        queues.put_declared("email", {}, TWO_ATTEMPTS, expected_revision=0)

        assert queues.settings("billing").retry.max_attempts == 9
        assert queues.settings("email").retry.max_attempts == 2

    def test_other_queues_stay_as_they_are(self, queues: QueueStore) -> None:
        email = declare(queues, "email", **TWO_ATTEMPTS)

        declare(queues, "billing", **NINE_ATTEMPTS)

        assert queues.stored("email") == email
        assert set(queues.all()) == {"billing", "email"}

    def test_a_deploy_undoes_neither_pause_nor_override(self, queues: QueueStore) -> None:
        declare(queues, **TWO_ATTEMPTS)
        queues.pause("billing", paused=True, now=NOW)
        queues.put_override("billing", SLOW, expected_revision=0)

        after = declare(queues, after=1, **NINE_ATTEMPTS)

        assert (after.paused_at, after.override, after.override_revision) == (NOW, SLOW, 1)
        assert queues.stored("billing") == after
        settings = queues.settings("billing")
        assert settings.paused
        assert (settings.retry.max_attempts, settings.retry.policy.initial) == (
            9,
            timedelta(seconds=30),
        )

    def test_resume_undoes_a_pause_and_nothing_else(self, queues: QueueStore) -> None:
        before = declare(queues, **TWO_ATTEMPTS)
        queues.pause("billing", paused=True, now=NOW)

        queues.pause("billing", paused=False, now=NOW)

        assert queues.stored("billing") == before
        assert not queues.settings("billing").paused

    def test_a_queue_that_is_not_there_is_not_made_by_pausing_or_overriding_it(
        self, queues: QueueStore
    ) -> None:
        with pytest.raises(QueueNotFound):
            queues.pause("billing", paused=True, now=NOW)
        with pytest.raises(QueueNotFound):
            queues.put_override("billing", SLOW, expected_revision=0)

        assert queues.all() == {}

    def test_shards_ever_rises_with_the_shards_and_never_falls(self, queues: QueueStore) -> None:
        declare(queues, index_shards=8)
        declare(queues, after=1, index_shards=2)

        settings = queues.settings("billing")

        assert (settings.index_shards, settings.shards_ever) == (2, 8)

    def test_shards_of_an_override_are_remembered_when_it_is_gone(self, queues: QueueStore) -> None:
        declare(queues, index_shards=2)
        queues.put_override(
            "billing", Override(layer={"index_shards": 16}, reason="a rush"), expected_revision=0
        )

        queues.put_override("billing", None, expected_revision=1)

        settings = queues.settings("billing")
        assert (settings.index_shards, settings.shards_ever) == (2, 16)

    def test_an_override_wins_until_it_ends(self, queues: QueueStore) -> None:
        declare(queues, **TWO_ATTEMPTS)
        over = Override(layer=NINE_ATTEMPTS, reason="yesterday's outage", expires_at=NOW)
        queues.put_override("billing", over, expected_revision=0)

        assert queues.settings("billing").retry.max_attempts == 2

        queues.put_override(
            "billing", Override(layer=NINE_ATTEMPTS, reason="today's"), expected_revision=1
        )
        assert queues.settings("billing").retry.max_attempts == 9

    def test_a_definition_stands_between_what_is_declared_and_the_defaults_of_its_file(
        self, queues: QueueStore
    ) -> None:
        defaults = {
            "retry": {"max_attempts": 4, "max_backoff": "1h"},
            "limits": {"max_redrives": 3},
        }
        queues.put_declared("billing", TWO_ATTEMPTS, defaults, expected_revision=0)
        queues.put_override("billing", SLOW, expected_revision=0)

        definition = {
            "retry": {"max_attempts": 7, "initial_backoff": "5s"},
            "execution": {"handler_timeout": "2m"},
        }
        settings = queues.settings("billing", definition=definition)

        assert (settings.retry.max_attempts, settings.limits.max_redrives, settings.revision) == (
            2,
            3,
            1,
        )
        assert settings.retry.policy.initial == timedelta(seconds=30)
        assert settings.retry.policy.maximum == timedelta(hours=1)
        assert settings.execution.handler_timeout == timedelta(minutes=2)
        assert queues.settings("billing").execution.handler_timeout == timedelta(seconds=45)

    def test_an_override_has_a_stale_writer_too(self, queues: QueueStore) -> None:
        declare(queues)
        queues.put_override("billing", SLOW, expected_revision=0)

        with pytest.raises(
            ConfigConflict, match=r"override .* at revision 1, .* read revision 0"
        ) as refused:
            queues.put_override("billing", None, expected_revision=0)

        assert 'retry.initial_backoff is "30s", yours unset' in str(refused.value.hint)

    def test_an_override_that_contradicts_what_is_declared_is_refused(
        self, queues: QueueStore
    ) -> None:
        declare(queues, execution={"lease": "10s", "handler_timeout": "9s"})

        with pytest.raises(ConfigInvalid):
            queues.put_override(
                "billing",
                Override(layer={"execution": {"heartbeat": "20s"}}, reason="?"),
                expected_revision=0,
            )

    def test_an_override_that_a_deploy_contradicts_is_left_out(self, queues: QueueStore) -> None:
        declare(queues, execution={"lease": "60s"})
        queues.put_override(
            "billing",
            Override(layer={"execution": {"heartbeat": "20s"}}, reason="slow disk"),
            expected_revision=0,
        )

        after = declare(queues, after=1, execution={"lease": "10s", "handler_timeout": "9s"})

        assert after.is_override_suspended()
        assert queues.settings("billing").execution.lease == timedelta(seconds=10)

    @pytest.mark.parametrize("name", ["", "Café", "a" * 241, "billing\n", "rdq.own", "a#1"])
    def test_a_name_that_no_queue_can_have_is_refused(self, queues: QueueStore, name: str) -> None:
        with pytest.raises(InputInvalid):
            declare(queues, name)

        assert queues.all() == {}

    def test_layers_that_contradict_each_other_are_refused(self, queues: QueueStore) -> None:
        with pytest.raises(ConfigInvalid):
            declare(
                queues, execution={"lease": "10s", "handler_timeout": "30s", "heartbeat": "off"}
            )

        assert queues.stored("billing") is None

    def test_odd_text_survives(self, queues: QueueStore) -> None:
        declared: dict[str, Any] = {
            "owner": "équipe 👩‍🚀",
            "classification": {"permanent": ["*.Fehler", "ßtatus?"]},
        }

        declare(queues, **declared)

        stored = queues.stored("billing")
        assert stored is not None
        assert stored.declared == declared

    def test_of_writers_who_read_the_same_revision_one_wins(self, queues: QueueStore) -> None:
        outcomes = side_by_side([partial(declare, queues, owner=f"team-{n}") for n in range(8)])

        winners = [outcome for outcome in outcomes if isinstance(outcome, StoredQueue)]
        assert len(winners) == 1
        assert queues.stored("billing") == winners[0]
        assert sum(isinstance(outcome, ConfigConflict) for outcome in outcomes) == 7
