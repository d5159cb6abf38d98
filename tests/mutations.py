"""Each named clause of a conditional write, made always true: the contract test mapped to it must
then fail.

    python -m tests.mutations              all clauses
    python -m tests.mutations IS_DUE ...   these

A clause that no test misses is not needed, or a test is missing. An unlisted
one is an error.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from rdq_core.stores.dynamodb.expressions import ALWAYS, CLAUSES

VARIABLE: Final = "RDQ_ALWAYS_TRUE"
_TESTS_FAILED: Final = 1
_AT_ONCE: Final = 2

_STORE: Final = "tests/contract/test_store.py::TestStore::"
_QUEUES: Final = "tests/contract/test_store.py::TestQueues::"
_DELETION: Final = "tests/contract/test_store.py::TestDeletion::"
_JOBS: Final = "tests/contract/test_store.py::TestJobs::"
_DYNAMODB: Final = "tests/dynamodb/"

_RESERVATIONS: Final = "tests/contract/test_reservations.py::"

_EDITED_BEFORE_CANCEL: Final = (
    "test_operator_races.py::test_a_cancel_lets_the_body_of_an_edit_that_came_in_between_"
    "live_as_long_as_the_task"
)
KILLED_BY: Final[dict[str, str]] = {
    "IS_ABSENT": _STORE + "test_a_repeated_submit_gives_the_stored_task_and_changes_nothing",
    "HAS_EXPIRED": _STORE + "test_a_repeated_submit_gives_the_stored_task_and_changes_nothing",
    "HAS_NOT_EXPIRED": _STORE
    + "test_a_dead_task_whose_retention_is_over_leaves_no_entry_to_the_new_one",
    "IS_FRESH": _DYNAMODB
    + "test_races.py::test_the_first_settling_of_a_claim_is_the_one_that_counts",
    "IS_WAITING": _STORE + "test_a_lapsed_lease_is_not_taken_over_by_a_mere_claim",
    "IS_DUE": _STORE + "test_a_task_that_is_not_due_is_not_claimed_whatever_the_index_says",
    "IS_AS_SEEN": _STORE + "test_an_entry_from_before_an_attempt_does_not_claim_the_one_after_it",
    "IS_READABLE": _DYNAMODB
    + "test_odd.py::test_a_row_that_cannot_be_read_is_told_and_left_as_it_is",
    "IS_HELD_BY_CALLER": _STORE + "test_a_superseded_token_changes_nothing",
    "IS_HANDED_OVER": _STORE + "test_what_was_adopted_lapses_as_an_attempt_and_not_as_a_release",
    "IS_EARLIER": _STORE + "test_a_heartbeat_never_shortens_a_lease",
    "IS_LIVE": _STORE + "test_what_has_ended_is_not_cancelled_and_the_refusal_names_its_state",
    "IS_DEAD": _STORE + "test_what_is_not_dead_is_neither_redriven_nor_purged",
    "DIED_THEN": _STORE + "test_an_old_entry_redrives_nothing_of_the_new_life",
    "IS_NOT_DONE": _DYNAMODB
    + "test_operator_races.py::test_one_request_redrives_a_task_once_however_often_it_asks",
    "BODY_IS_THERE": _DYNAMODB + "test_bodies.py::test_the_renewal_of_a_missing_body_makes_none",
    "BODY_ENDS_SOONER": _DYNAMODB
    + "test_bodies.py::test_a_renewal_that_crashes_before_its_write_leaves_a_longer_life_"
    "and_no_shorter_one",
    "NAMES_SEEN_BODY": _DYNAMODB + _EDITED_BEFORE_CANCEL,
    "NAMES_NO_BODY": _DYNAMODB + _EDITED_BEFORE_CANCEL,
    "BODY_IS_AS_SEEN": _DYNAMODB
    + "test_renewing.py::test_a_body_that_stays_for_good_meanwhile_is_given_no_end",
    "IS_OF_SEEN_LIFE": _DYNAMODB
    + "test_orphans.py::test_an_entry_that_another_life_has_put_meanwhile_stays",
    "REFERENCES_ARE_AS_SEEN": _DYNAMODB
    + "test_references.py::test_references_that_stay_for_good_meanwhile_are_given_no_end",
    "HAS_AN_END": _DYNAMODB + "test_references.py::test_keeping_a_missing_reference_makes_none",
    "IS_THIS_LIFE": _DYNAMODB
    + "test_references.py::test_a_new_task_under_the_id_of_one_that_is_being_forgotten_stays",
    "IS_NOT_DEAD": _DYNAMODB
    + "test_references.py::test_a_task_that_dies_while_it_is_forgotten_leaves_no_entry",
    "IS_FORGOTTEN_NO_LATER": _DYNAMODB
    + "test_references.py::test_the_tombstone_of_a_later_forget_stands",
    "IS_NOT_FORGOTTEN_SINCE": _DYNAMODB
    + "test_preparing.py::test_what_was_forgotten_since_it_was_prepared_is_not_committed",
    "IS_UNCONFIGURED": _DYNAMODB
    + "test_control.py::test_of_two_who_declare_a_new_queue_the_first_one_stays",
    "IS_CONFIGURED": _QUEUES
    + "test_a_queue_that_is_not_there_is_not_made_by_pausing_or_overriding_it",
    "IS_DECLARED_AS_READ": _DYNAMODB
    + "test_control.py::test_a_deploy_in_between_is_a_conflict_and_stays",
    "IS_OVERRIDDEN_AS_READ": _DYNAMODB
    + "test_control.py::test_an_override_written_in_between_raises_the_shards_for_good",
    "IS_NOT_DELETING": _DELETION + "test_deleting_again_does_not_begin_again",
    "IS_NOT_DELETED": _DELETION + "test_a_tombstone_keeps_the_time_at_which_it_was_made",
    "IS_DELETING_AS_READ": _DELETION + "test_of_two_deletions_only_the_one_that_was_seen_is_ended",
    "IS_DELETED_AS_READ": _DELETION + "test_only_the_tombstone_that_was_seen_is_opened",
    "NEVER_LOOKED_AT": _DELETION + "test_of_hosts_that_would_look_at_the_same_time_one_looks",
    "LOOKED_AT_AS_READ": _DELETION + "test_of_hosts_that_would_look_at_the_same_time_one_looks",
    "IS_NOT_RECORDED": "tests/contract/test_store.py::TestAudit::"
    "test_what_was_recorded_is_never_overwritten",
    "IS_NEW_JOB": _JOBS
    + "test_a_job_whose_answer_was_lost_is_made_once_and_another_is_not_put_over_it",
    "HAS_NEVER_ENDED": _JOBS + "test_a_job_that_another_host_has_advanced_is_not_started_again",
    "JOB_IS_AS_READ": _JOBS + "test_of_two_writers_that_read_the_same_job_one_wins",
    "NO_SECRET_YET": "tests/dynamodb/test_secret.py::test_of_two_who_find_no_key_one_makes_it",
    "NOTHING_HANDED_OUT": _DYNAMODB
    + "test_rate.py::test_a_sweeper_who_has_seen_nothing_does_not_begin_the_bucket_anew",
    "RESERVATION_ENDS_SOONER": _RESERVATIONS
    + "TestAwake::test_a_shorter_presence_does_not_shorten_a_longer_one",
    "IS_NOT_RESERVED": _RESERVATIONS + "TestAwake::test_of_many_who_would_start_a_sweep_one_does",
    "IS_RESERVED": _RESERVATIONS
    + "test_who_falls_asleep_and_never_was_awake_leaves_nothing_behind",
    "HANDED_OUT_AS_READ": _DYNAMODB
    + "test_rate.py::test_a_bucket_fills_at_its_rate_for_all_of_them",
    "KEY_IS_FREE": _STORE + "test_a_second_task_of_the_key_has_to_wait_and_nothing_of_it_changes",
    "KEY_IS_AS_SEEN": _DYNAMODB
    + "test_concurrency_keys.py::test_two_claimants_who_both_find_a_leaked_key_do_not_both_take_it",
    "KEY_IS_HELD_BY_CLAIM": _DYNAMODB + "test_concurrency_keys.py::"
    "test_a_late_clean_up_does_not_free_the_key_of_a_claim_that_came_after",
}
"""The test that misses a clause: the contract's where it can tell, else the store's own. None needs
a server.
"""


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of the tests: make one clause always true."""
    clause = os.environ.get(VARIABLE)
    if clause is not None:
        CLAUSES[clause] = ALWAYS


def fails_without(clause: str) -> str | None:
    """None when the mapped test fails without the clause, else what happened instead."""
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "tests.mutations",
            "-m",
            "not ministack",
            KILLED_BY[clause],
        ],
        env={**os.environ, VARIABLE: clause},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == _TESTS_FAILED:
        return None
    return (
        "survives"
        if run.returncode == 0
        else f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}"
    )


def main(names: Iterable[str]) -> int:
    """Try the clauses; 1 when one survives or is not mapped."""
    unlisted = sorted(set(CLAUSES) ^ set(KILLED_BY))
    if unlisted:
        print(f"clauses and KILLED_BY differ in: {', '.join(unlisted)}", file=sys.stderr)
        return 1
    clauses = list(names) or sorted(CLAUSES)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        outcomes = dict(zip(clauses, pool.map(fails_without, clauses), strict=True))
    for clause, problem in outcomes.items():
        print(f"{'killed' if problem is None else 'ALIVE '}  {clause:26}{problem or ''}")
    alive = sum(problem is not None for problem in outcomes.values())
    print(f"{len(outcomes) - alive} passed, {alive} failed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
