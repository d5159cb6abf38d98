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
from tests.ops.office import FILE, Office

LEASED = FILE.replace("owner: team-payments", "execution: {lease: 10s, handler_timeout: 9s}")


@pytest.fixture
def office() -> Office:
    made = Office()
    made.apply()
    return made


def attempts(office: Office) -> int:
    return office.queues.settings("billing").retry.max_attempts


# -- set -------------------------------------------------------------------------------------------


def test_what_is_set_is_in_force_with_its_reason_and_what_it_changed(office: Office) -> None:
    done = office.set("retry.max_attempts=9", "execution.lease=2m", reason="the bank is slow")

    assert attempts(office) == 9
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


def test_what_was_set_before_stays_and_a_key_is_taken_out_by_an_empty_value(office: Office) -> None:
    office.set("retry.max_attempts=9")
    office.set("retry.jitter=0.5")
    assert office.set("retry.max_attempts=")["override"]["layer"] == {"retry": {"jitter": 0.5}}

    assert office.set("retry.jitter=")["override"] is None


def test_setting_the_same_again_writes_nothing(office: Office) -> None:
    office.set("retry.max_attempts=9")

    assert office.set("retry.max_attempts=9")["changed"] is False

    assert len(office.records("id")) == 2 * 3


def test_an_override_ends_by_itself(office: Office) -> None:
    done = office.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    assert done["override"]["expires_at"] == "2026-07-20T14:00:00.000Z"

    office.clock.advance(timedelta(hours=2) - timedelta(milliseconds=1))
    assert attempts(office) == 9
    office.clock.advance(timedelta(milliseconds=1))
    assert attempts(office) == 4


def test_what_has_ended_does_not_come_back_with_the_next_set(office: Office) -> None:
    office.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    office.clock.advance("2h")

    done = office.set("retry.jitter=0.5")

    assert (done["override"]["layer"], done["override"]["expires_at"]) == (
        {"retry": {"jitter": 0.5}},
        None,
    )


def test_a_later_set_keeps_the_end_unless_it_gives_another(office: Office) -> None:
    office.set("retry.max_attempts=9", lasts=timedelta(hours=2))
    office.clock.advance("1h")

    assert office.set("retry.jitter=0.5")["override"]["expires_at"] == "2026-07-20T14:00:00.000Z"
    later = office.set("retry.jitter=0.6", lasts=timedelta(hours=3))
    assert later["override"]["expires_at"] == "2026-07-20T16:00:00.000Z"
    assert office.set("retry.jitter=0.7", lasts=FOR_EVER)["override"]["expires_at"] is None


@pytest.mark.parametrize("lasts", [timedelta(0), timedelta(milliseconds=999), timedelta(days=366)])
def test_an_end_that_makes_no_sense_is_refused(office: Office, lasts: timedelta) -> None:
    with pytest.raises(InputInvalid, match="for: must be from 1s to 365d, or never"):
        office.set("retry.max_attempts=9", lasts=lasts)


@pytest.mark.parametrize(
    ("assignment", "told"),
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
    office: Office, assignment: str, told: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        office.set(assignment)

    assert told in str(refused.value)
    assert attempts(office) == 4
    assert len(office.records("id")) == 2 * 2


def test_a_set_is_refused_when_what_is_left_after_it_would_be_invalid(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is declared was edited by hand: the override would hide that it is invalid, until it
    ends.
    """
    broken = StoredQueue(queue="billing", declared={"execution": {"heartbeat": "2m"}}, revision=1)
    monkeypatch.setattr(office.queues, "stored", lambda _queue: broken)

    with pytest.raises(ConfigInvalid, match=r"execution\.heartbeat"):
        office.set("execution.heartbeat=10s")


@pytest.mark.parametrize("reason", ["", "x" * 1025])
def test_a_set_without_a_reason_is_refused(office: Office, reason: str) -> None:
    with pytest.raises(InputInvalid, match="reason"):
        office.set("retry.max_attempts=9", reason=reason)


def test_a_set_of_nothing_is_refused(office: Office) -> None:
    with pytest.raises(InputInvalid, match="nothing to set"):
        office.set()


def test_clearing_takes_all_of_it_away(office: Office) -> None:
    office.set("retry.max_attempts=9", "retry.jitter=0.5")

    done = office.edits.clear("billing", reason="the bank is back")

    assert (done["override"], attempts(office)) == (None, 4)
    assert office.edits.clear("billing")["changed"] is False


def test_of_two_operators_the_slower_one_sees_what_the_faster_one_has_set(office: Office) -> None:
    queues = office.queues
    theirs = Override(layer={"retry": {"max_attempts": 7}}, reason="theirs")

    class SetsFirst(MemoryQueues):
        """Somebody who sets an override just before we do."""

        def put_override(self, queue: str, override: Any, *, expected_revision: int) -> Any:
            queues.put_override(queue, theirs, expected_revision=0)
            return queues.put_override(queue, override, expected_revision=expected_revision)

        stored = queues.stored

    with pytest.raises(ConfigConflict) as refused:
        office.editor(SetsFirst(clock=office.clock)).set(
            "billing", ["retry.max_attempts=9"], reason="ours"
        )

    assert "at revision 1, and you have read revision 0" in str(refused.value)
    assert "retry.max_attempts is 7, yours 9" in str(refused.value.hint)
    assert office.records("operation", "phase")[-2:] == [
        ("queue.set", "intent"),
        ("queue.set", "failed"),
    ]


# -- deploys and overrides -------------------------------------------------------------------------


def test_after_a_deploy_following_an_override_the_override_still_holds(office: Office) -> None:
    office.set("retry.max_attempts=9")

    office.apply(FILE.replace("max_attempts: 4", "max_attempts: 6"))

    assert attempts(office) == 9
    office.edits.clear("billing")
    assert attempts(office) == 6


def test_a_deploy_that_contradicts_an_override_succeeds_suspends_it_and_is_on_record(
    office: Office,
) -> None:
    office.set("execution.heartbeat=20s", reason="slow disk")

    (billing, _) = office.apply(LEASED)

    assert (billing["result"], billing["override_suspended"]) == ("changed", True)
    assert office.desk.get("billing")["override"]["suspended"] is True
    assert [item["override"] for item in office.desk.list()["items"]] == ["suspended", None]
    ((detail,),) = [
        record for record in office.records("detail") if "override_suspended" in record[0]
    ][-1:]
    assert detail["override_suspended"] is True
    assert office.apply(LEASED)[0] == {
        "queue": "billing",
        "result": "unchanged",
        "revision": 2,
        "override_suspended": True,
    }


def test_a_suspended_override_is_in_force_again_when_a_deploy_allows_it(office: Office) -> None:
    office.set("execution.heartbeat=20s", reason="slow disk")
    office.apply(LEASED)
    assert office.queues.settings("billing").override_suspended

    office.apply(FILE)

    assert office.desk.get("billing")["override"]["in_force"] is True


# -- diff ------------------------------------------------------------------------------------------


def test_a_file_as_it_was_applied_is_no_difference(office: Office) -> None:
    assert [(each["result"], each["changes"]) for each in office.diff()] == [
        ("unchanged", []),
        ("unchanged", []),
    ]


def test_a_difference_is_told_key_by_key_and_changes_nothing(office: Office) -> None:
    file = FILE.replace("owner: team-payments", "retry: {jitter: 0.5}").replace(
        "attempts: 4", "attempts: 5"
    )

    billing, email = office.diff(file + "  sms: {index_shards: 2}")[0], office.diff(file)[1]

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
    assert office.diff() == [{**each, "changes": []} for each in office.diff()]


def test_a_difference_tells_of_new_queues_and_of_overrides_that_would_be_suspended(
    office: Office,
) -> None:
    office.set("execution.heartbeat=20s")

    billing, _, sms = office.diff(LEASED + "  sms: {}")

    assert billing["override_suspended"] is True
    assert (sms["result"], sms["revision"]) == ("created", 0)
    assert office.queues.stored("sms") is None


def test_a_file_without_queues_is_refused(office: Office) -> None:
    for ask in (office.diff, office.apply):
        with pytest.raises(ConfigInvalid, match="the file names no queue"):
            ask("config_version: 1")


# -- pause -----------------------------------------------------------------------------------------


def test_a_pause_has_its_time_and_reason_and_survives_writes(office: Office) -> None:
    assert office.edits.pause("billing", reason="the bank is down") == {
        "queue": "billing",
        "paused": True,
        "paused_at": "2026-07-20T12:00:00.000Z",
        "pause_reason": "the bank is down",
        "changed": True,
    }
    office.clock.advance("1h")
    office.set("retry.max_attempts=9")
    office.apply(FILE.replace("attempts: 4", "attempts: 5"))
    office.edits.clear("billing")

    again = office.edits.pause("billing")
    assert (again["changed"], again["paused_at"], again["pause_reason"]) == (
        False,
        "2026-07-20T12:00:00.000Z",
        "the bank is down",
    )
    assert office.edits.resume("billing")["paused"] is False
    assert office.edits.resume("billing")["changed"] is False


# -- delete ----------------------------------------------------------------------------------------


def test_a_queue_is_deleted_in_two_steps(office: Office) -> None:
    first = office.edits.delete("billing", reason="moved to orders")
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
    office.clock.advance(REFUSES_FOR - timedelta(seconds=1))
    assert office.edits.delete("billing")["state"] == "deleting"

    office.clock.advance("1s")
    assert office.edits.delete("billing")["state"] == "deleted"
    assert office.edits.delete("billing")["state"] == "deleted"
    for ask in (office.desk.get, office.desk.stats, office.desk.ladder):
        with pytest.raises(QueueNotFound, match="was deleted"):
            ask("billing")
    assert [item["queue"] for item in office.desk.list()["items"]] == ["email"]


def test_what_is_still_there_is_counted_and_keeps_the_queue(office: Office) -> None:
    office.store.submit(a_task(), shards=1)
    office.edits.delete("billing")
    office.clock.advance("1h")

    again = office.edits.delete("billing")

    assert (again["state"], again["pending"]) == ("deleting", 1)
    assert office.desk.list()["items"][0]["deleting"] is True
    assert office.desk.get("billing")["deleting_at"] == "2026-07-20T12:00:00.000Z"


def test_applying_a_file_keeps_a_queue_that_is_being_deleted(office: Office) -> None:
    office.edits.delete("billing")
    assert office.diff()[0]["result"] == "restored"

    assert office.apply()[0] == {"queue": "billing", "result": "restored", "revision": 2}

    assert not office.queues.settings("billing").deleting


def test_applying_a_file_makes_a_deleted_queue_anew(office: Office) -> None:
    office.edits.delete("email")
    office.clock.advance(REFUSES_FOR)
    office.edits.delete("email")

    applied = office.apply(FILE.replace("index_shards: 8", "index_shards: 2"))[1]

    assert applied == {"queue": "email", "result": "created", "revision": 2}
    assert office.queues.settings("email").shards_ever == 8


@pytest.mark.parametrize("verb", ["pause", "resume", "delete", "clear"])
def test_a_queue_that_is_not_configured_is_told_with_the_nearest_one(
    office: Office, verb: str
) -> None:
    with pytest.raises(QueueNotFound) as refused:
        getattr(office.edits, verb)("biling")

    assert refused.value.hint == "did you mean billing?"


# -- audit -----------------------------------------------------------------------------------------


def test_every_change_is_on_record_with_who_and_why(office: Office) -> None:
    office.set("retry.max_attempts=9", reason="a rush")
    office.edits.pause("billing", reason="too much")
    office.edits.resume("billing")
    office.edits.delete("billing", reason="moved")

    records = office.records("operation", "phase", "reason", "principal", "verified")
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


def test_a_record_says_what_was_changed(office: Office) -> None:
    office.set("retry.max_attempts=9", lasts=timedelta(hours=2))

    intent, done = office.records("phase", "detail")[-2:]

    assert intent == (
        "intent",
        {"until": "2026-07-20T14:00:00.000Z", "changes": {"retry.max_attempts": [4, 9]}},
    )
    assert done == ("done", {"override_revision": 1})


def test_what_cannot_be_put_on_record_is_not_done(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_record: object) -> None:
        raise StoreFailed("no answer", may_have_happened=False)

    monkeypatch.setattr(office.audit, "append", fails)
    for change in (
        lambda: office.set("retry.max_attempts=9"),
        lambda: office.edits.pause("billing"),
        lambda: office.edits.delete("billing"),
        lambda: office.apply(FILE.replace("attempts: 4", "attempts: 5")),
    ):
        with pytest.raises(StoreFailed):
            change()

    settings = office.queues.settings("billing")
    assert (settings.retry.max_attempts, settings.paused, settings.deleting, settings.revision) == (
        4,
        False,
        False,
        1,
    )
