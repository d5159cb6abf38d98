"""What operators and deploys change about queues, and that everything is on record before it is
done.
"""

from datetime import timedelta
from typing import Any

import pytest

from rdq_core.config.stored import Override, StoredQueue
from rdq_core.engine.removal import REFUSES_FOR
from rdq_core.errors import ConfigConflict, ConfigInvalid, InputInvalid, QueueNotFound, StoreFailed
from rdq_core.ops.queue_edits import FOR_EVER
from rdq_core.stores.memory_control import MemoryQueues
from rdq_core.testing.contract.factories import a_task
from tests.ops.operators import FILE, Operator

LEASED = FILE.replace("owner: team-payments", "execution: {lease: 10s, handler_timeout: 9s}")


@pytest.fixture
def operator() -> Operator:
    made = Operator()
    made.apply()
    return made


def attempts(operator: Operator) -> int:
    return operator.queues.settings("billing").retry.max_attempts


# -- set -------------------------------------------------------------------------------------------


def test_what_is_set_is_in_force_with_its_reason_and_what_it_changed(operator: Operator) -> None:
    done = operator.set("retry.max_attempts=9", "execution.lease=2m", reason="the bank is slow")

    assert attempts(operator) == 9
    assert done == {
        "queue": "billing",
        "changed": True,
        "override": {
            "revision": 1,
            "layer": {"retry": {"max_attempts": 9}, "execution": {"lease": "2m"}},
            "reason": "the bank is slow",
            "expires_at": None,
            "in_force": True,
            "suspended": False,
        },
        "changes": [
            {"key": "retry.max_attempts", "before": 4, "after": 9},
            {"key": "execution.lease", "before": "1m", "after": "2m"},
            {"key": "execution.heartbeat", "before": "20s", "after": "off"},
        ],
    }


def test_what_was_set_before_stays_and_a_key_is_taken_out_by_an_empty_value(
    operator: Operator,
) -> None:
    operator.set("retry.max_attempts=9")
    operator.set("retry.jitter=0.5")
    assert operator.set("retry.max_attempts=")["override"]["layer"] == {"retry": {"jitter": 0.5}}

    assert operator.set("retry.jitter=")["override"] is None


def test_setting_the_same_again_writes_nothing(operator: Operator) -> None:
    operator.set("retry.max_attempts=9")

    assert operator.set("retry.max_attempts=9")["changed"] is False

    assert len(operator.records("id")) == 2 * 3


def test_an_override_ends_by_itself(operator: Operator) -> None:
    done = operator.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    assert done["override"]["expires_at"] == "2026-07-20T14:00:00.000Z"

    operator.clock.advance(timedelta(hours=2) - timedelta(milliseconds=1))
    assert attempts(operator) == 9
    operator.clock.advance(timedelta(milliseconds=1))
    assert attempts(operator) == 4


def test_what_has_ended_does_not_come_back_with_the_next_set(operator: Operator) -> None:
    operator.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    operator.clock.advance("2h")

    done = operator.set("retry.jitter=0.5")

    assert (done["override"]["layer"], done["override"]["expires_at"]) == (
        {"retry": {"jitter": 0.5}},
        None,
    )


def test_a_later_set_keeps_the_end_unless_it_gives_another(operator: Operator) -> None:
    operator.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    operator.clock.advance("1h")

    assert operator.set("retry.jitter=0.5")["override"]["expires_at"] == "2026-07-20T14:00:00.000Z"
    later = operator.set("retry.jitter=0.6", lasts=timedelta(hours=3))
    assert later["override"]["expires_at"] == "2026-07-20T16:00:00.000Z"
    assert operator.set("retry.jitter=0.7", lasts=FOR_EVER)["override"]["expires_at"] is None


@pytest.mark.parametrize("lasts", [timedelta(0), timedelta(milliseconds=999), timedelta(days=366)])
def test_an_end_that_makes_no_sense_is_refused(operator: Operator, lasts: timedelta) -> None:
    with pytest.raises(InputInvalid, match="for: must be from 1s to 365d, or never"):
        operator.set("retry.max_attempts=9", lasts=lasts)


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        (
            "retry.max_attempts=0",
            "retry.max_attempts: 0 is refused; accepted: a whole number from 1 to 100",
        ),
        ("retry.max_atempts=9", "did you mean max_attempts?"),
        ("retry.max_attempts", "accepted: KEY=VALUE"),
        ("owner=NO", 'quote it: "NO"'),
        (
            "execution.heartbeat=2m",
            'queues.billing.execution.heartbeat: "2m" is refused; accepted: an interval shorter',
        ),
    ],
)
def test_what_is_not_accepted_is_refused_by_path_value_and_what_would_be(
    operator: Operator, assignment: str, problem: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        operator.set(assignment)

    assert problem in str(refused.value)
    assert attempts(operator) == 4
    assert len(operator.records("id")) == 2 * 2


def test_a_set_is_refused_when_what_is_left_after_it_would_be_invalid(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is declared was edited by hand: the override would hide that it is invalid, until it
    ends.
    """
    broken = StoredQueue(queue="billing", declared={"execution": {"heartbeat": "2m"}}, revision=1)
    monkeypatch.setattr(operator.queues, "stored", lambda _queue: broken)

    with pytest.raises(ConfigInvalid, match=r"execution\.heartbeat"):
        operator.set("execution.heartbeat=10s")


@pytest.mark.parametrize("reason", ["", "x" * 1025])
def test_a_set_without_a_reason_is_refused(operator: Operator, reason: str) -> None:
    with pytest.raises(InputInvalid, match="reason"):
        operator.set("retry.max_attempts=9", reason=reason)


def test_a_set_of_nothing_is_refused(operator: Operator) -> None:
    with pytest.raises(InputInvalid, match="nothing to set"):
        operator.set()


def test_clearing_takes_all_of_it_away(operator: Operator) -> None:
    operator.set("retry.max_attempts=9", "retry.jitter=0.5")

    done = operator.edits.clear("billing", reason="the bank is back")

    assert (done["override"], attempts(operator)) == (None, 4)
    assert operator.edits.clear("billing")["changed"] is False


def test_of_two_operators_the_slower_one_sees_what_the_faster_one_has_set(
    operator: Operator,
) -> None:
    queues = operator.queues
    theirs = Override(layer={"retry": {"max_attempts": 7}}, reason="theirs")

    class SetsFirst(MemoryQueues):
        """Somebody who sets an override just before we do."""

        def put_override(self, queue: str, override: Any, *, expected_revision: int) -> Any:
            queues.put_override(queue, theirs, expected_revision=0)
            return queues.put_override(queue, override, expected_revision=expected_revision)

        stored = queues.stored

    with pytest.raises(ConfigConflict) as refused:
        operator.editor(SetsFirst(clock=operator.clock)).set(
            "billing", ["retry.max_attempts=9"], reason="ours"
        )

    assert "at revision 1, and you have read revision 0" in str(refused.value)
    assert "retry.max_attempts is 7, yours 9" in str(refused.value.hint)
    assert operator.records("operation", "phase")[-2:] == [
        ("queue.set", "intent"),
        ("queue.set", "failed"),
    ]


# -- deploys and overrides -------------------------------------------------------------------------


def test_after_a_deploy_following_an_override_the_override_still_holds(operator: Operator) -> None:
    operator.set("retry.max_attempts=9")

    operator.apply(FILE.replace("max_attempts: 4", "max_attempts: 6"))

    assert attempts(operator) == 9
    operator.edits.clear("billing")
    assert attempts(operator) == 6


def test_a_deploy_that_contradicts_an_override_succeeds_suspends_it_and_is_on_record(
    operator: Operator,
) -> None:
    operator.set("execution.heartbeat=20s", reason="slow disk")

    (billing, _) = operator.apply(LEASED)

    assert (billing["result"], billing["override_suspended"]) == ("changed", True)
    assert operator.reader.get("billing")["override"]["suspended"] is True
    assert [item["override"] for item in operator.reader.list()["items"]] == ["suspended", None]
    ((detail,),) = [
        record for record in operator.records("detail") if "override_suspended" in record[0]
    ][-1:]
    assert detail["override_suspended"] is True
    assert operator.apply(LEASED)[0] == {
        "queue": "billing",
        "result": "unchanged",
        "revision": 2,
        "override_suspended": True,
    }


def test_a_suspended_override_is_in_force_again_when_a_deploy_allows_it(operator: Operator) -> None:
    operator.set("execution.heartbeat=20s", reason="slow disk")
    operator.apply(LEASED)
    assert operator.queues.settings("billing").override_suspended

    operator.apply(FILE)

    assert operator.reader.get("billing")["override"]["in_force"] is True


# -- diff ------------------------------------------------------------------------------------------


def test_a_file_as_it_was_applied_is_no_difference(operator: Operator) -> None:
    assert [(each["result"], each["changes"]) for each in operator.diff()] == [
        ("unchanged", []),
        ("unchanged", []),
    ]


def test_a_difference_is_listed_key_by_key_and_changes_nothing(operator: Operator) -> None:
    file = FILE.replace("owner: team-payments", "retry: {jitter: 0.5}").replace(
        "attempts: 4", "attempts: 5"
    )

    billing, email = operator.diff(file + "  sms: {index_shards: 2}")[0], operator.diff(file)[1]

    assert billing == {
        "queue": "billing",
        "result": "changed",
        "revision": 1,
        "changes": [
            {"key": "owner", "stored": "team-payments", "file": None},
            {"key": "defaults.retry.max_attempts", "stored": 4, "file": 5},
            {"key": "retry.jitter", "stored": None, "file": 0.5},
        ],
    }
    assert email["changes"] == [{"key": "defaults.retry.max_attempts", "stored": 4, "file": 5}]
    assert operator.diff() == [{**each, "changes": []} for each in operator.diff()]


def test_a_difference_lists_new_queues_and_overrides_that_would_be_suspended(
    operator: Operator,
) -> None:
    operator.set("execution.heartbeat=20s")

    billing, _, sms = operator.diff(LEASED + "  sms: {}")

    assert billing["override_suspended"] is True
    assert (sms["result"], sms["revision"]) == ("created", 0)
    assert operator.queues.stored("sms") is None


def test_a_file_without_queues_is_refused(operator: Operator) -> None:
    for ask in (operator.diff, operator.apply):
        with pytest.raises(ConfigInvalid, match="the file names no queue"):
            ask("config_version: 1")


# -- pause -----------------------------------------------------------------------------------------


def test_a_pause_has_its_time_and_reason_and_survives_writes(operator: Operator) -> None:
    assert operator.edits.pause("billing", reason="the bank is down") == {
        "queue": "billing",
        "paused": True,
        "paused_at": "2026-07-20T12:00:00.000Z",
        "pause_reason": "the bank is down",
        "changed": True,
    }
    operator.clock.advance("1h")
    operator.set("retry.max_attempts=9")
    operator.apply(FILE.replace("attempts: 4", "attempts: 5"))
    operator.edits.clear("billing")

    again = operator.edits.pause("billing")
    assert (again["changed"], again["paused_at"], again["pause_reason"]) == (
        False,
        "2026-07-20T12:00:00.000Z",
        "the bank is down",
    )
    assert operator.edits.resume("billing")["paused"] is False
    assert operator.edits.resume("billing")["changed"] is False


# -- delete ----------------------------------------------------------------------------------------


def test_a_queue_is_deleted_in_two_steps(operator: Operator) -> None:
    first = operator.edits.delete("billing", reason="moved to orders")
    assert first == {
        "queue": "billing",
        "state": "deleting",
        "deleting_at": "2026-07-20T12:00:00.000Z",
        "deleted_at": None,
        "deletable_at": "2026-07-20T12:06:00.000Z",
        "paused": False,
        "pending": 0,
        "in_flight": 0,
        "dead": 0,
    }
    operator.clock.advance(REFUSES_FOR - timedelta(seconds=1))
    assert operator.edits.delete("billing")["state"] == "deleting"

    operator.clock.advance("1s")
    assert operator.edits.delete("billing")["state"] == "deleted"
    assert operator.edits.delete("billing")["state"] == "deleted"
    for ask in (operator.reader.get, operator.reader.stats, operator.reader.ladder):
        with pytest.raises(QueueNotFound, match="was deleted"):
            ask("billing")
    assert [item["queue"] for item in operator.reader.list()["items"]] == ["email"]


def test_what_is_still_there_is_counted_and_keeps_the_queue(operator: Operator) -> None:
    operator.store.submit(a_task(), shards=1)
    operator.edits.delete("billing")
    operator.clock.advance("1h")

    again = operator.edits.delete("billing")

    assert (again["state"], again["pending"]) == ("deleting", 1)
    assert operator.reader.list()["items"][0]["deleting"] is True
    assert operator.reader.get("billing")["deleting_at"] == "2026-07-20T12:00:00.000Z"


def test_applying_a_file_keeps_a_queue_that_is_being_deleted(operator: Operator) -> None:
    operator.edits.delete("billing")
    assert operator.diff()[0]["result"] == "restored"

    assert operator.apply()[0] == {"queue": "billing", "result": "restored", "revision": 2}

    assert not operator.queues.settings("billing").deleting


def test_applying_a_file_makes_a_deleted_queue_anew(operator: Operator) -> None:
    operator.edits.delete("email")
    operator.clock.advance(REFUSES_FOR)
    operator.edits.delete("email")

    applied = operator.apply(FILE.replace("index_shards: 8", "index_shards: 2"))[1]

    assert applied == {"queue": "email", "result": "created", "revision": 2}
    assert operator.queues.settings("email").shards_ever == 8


@pytest.mark.parametrize("verb", ["pause", "resume", "delete", "clear"])
def test_a_queue_that_is_not_configured_is_refused_with_the_nearest_name(
    operator: Operator, verb: str
) -> None:
    with pytest.raises(QueueNotFound) as refused:
        getattr(operator.edits, verb)("biling")

    assert refused.value.hint == "did you mean billing?"


# -- audit -----------------------------------------------------------------------------------------


def test_every_change_is_on_record_with_who_and_why(operator: Operator) -> None:
    operator.set("retry.max_attempts=9", reason="a rush")
    operator.edits.pause("billing", reason="too much")
    operator.edits.resume("billing")
    operator.edits.delete("billing", reason="moved")

    records = operator.records("operation", "phase", "reason", "principal", "verified")
    assert [record[:3] for record in records if record[0] != "queue.apply"] == [
        (operation, phase, reason)
        for operation, reason in (
            ("queue.set", "a rush"),
            ("queue.pause", "too much"),
            ("queue.resume", None),
            ("queue.delete", "moved"),
        )
        for phase in ("intent", "done")
    ]
    assert {record[3:] for record in records} == {("ann", True)}


def test_a_record_says_what_was_changed(operator: Operator) -> None:
    operator.set("retry.max_attempts=9", lasts=timedelta(hours=2))

    intent, done = operator.records("phase", "detail")[-2:]

    assert intent == (
        "intent",
        {"until": "2026-07-20T14:00:00.000Z", "changes": {"retry.max_attempts": [4, 9]}},
    )
    assert done == ("done", {"override_revision": 1})


def test_what_cannot_be_put_on_record_is_not_done(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_record: object) -> None:
        raise StoreFailed("no answer", may_have_happened=False)

    monkeypatch.setattr(operator.audit, "append", fails)
    for change in (
        lambda: operator.set("retry.max_attempts=9"),
        lambda: operator.edits.pause("billing"),
        lambda: operator.edits.delete("billing"),
        lambda: operator.apply(FILE.replace("attempts: 4", "attempts: 5")),
    ):
        with pytest.raises(StoreFailed):
            change()

    settings = operator.queues.settings("billing")
    assert (settings.retry.max_attempts, settings.paused, settings.deleting, settings.revision) == (
        4,
        False,
        False,
        1,
    )
