"""The checks see what they are there to see: each mistake in the template makes the named test
fail.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.infra import test_policies, test_starting, test_tables, test_watching
from tests.infra.templates import Template, as_list, sam, statements

Mutation = Callable[[Template], object]


def properties(stack: Template, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stack["Resources"][name]["Properties"]
    return found


def statement(stack: Template, policy: str, sid: str) -> dict[str, Any]:
    return next(
        each
        for each in statements(properties(stack, policy)["PolicyDocument"])
        if each["Sid"] == sid
    )


def without(stack: Template, policy: str, sid: str, action: str) -> None:
    found = statement(stack, policy, sid)
    found["Action"] = [each for each in as_list(found["Action"]) if each != action]


def with_another(stack: Template, policy: str, sid: str, action: str) -> None:
    found = statement(stack, policy, sid)
    found["Action"] = [*as_list(found["Action"]), action]


def due(stack: Template) -> dict[str, Any]:
    index: dict[str, Any] = properties(stack, "TasksTable")["GlobalSecondaryIndexes"][0]
    return index


TABLES: Final[dict[str, tuple[Mutation, Callable[..., None], str]]] = {
    "a wrong index key": (
        lambda stack: due(stack)["KeySchema"][1].update(AttributeName="next_attempt_at"),
        test_tables.test_keys_and_indexes_are_those_of_the_store,
        "TasksTable",
    ),
    "an attribute missing in the index": (
        lambda stack: due(stack)["Projection"]["NonKeyAttributes"].remove("fencing_token"),
        test_tables.test_keys_and_indexes_are_those_of_the_store,
        "TasksTable",
    ),
    "no stream": (
        lambda stack: properties(stack, "TasksTable").pop("StreamSpecification"),
        test_tables.test_streams_are_those_of_the_store,
        "TasksTable",
    ),
    "new images only": (
        lambda stack: properties(stack, "TasksTable")["StreamSpecification"].update(
            StreamViewType="NEW_IMAGE"
        ),
        test_tables.test_streams_are_those_of_the_store,
        "TasksTable",
    ),
    "a missing TTL": (
        lambda stack: properties(stack, "ControlTable").pop("TimeToLiveSpecification"),
        test_tables.test_rows_expire_by_the_attribute_of_the_store,
        "ControlTable",
    ),
    "a TTL on another attribute": (
        lambda stack: properties(stack, "DlqTable")["TimeToLiveSpecification"].update(
            AttributeName="ttl"
        ),
        test_tables.test_rows_expire_by_the_attribute_of_the_store,
        "DlqTable",
    ),
    "no recovery": (
        lambda stack: properties(stack, "DlqTable").pop("PointInTimeRecoverySpecification"),
        test_tables.test_tables_can_be_restored_and_are_encrypted,
        "DlqTable",
    ),
    "a table that goes with its stack": (
        lambda stack: stack["Resources"]["AuditTable"].pop("DeletionPolicy"),
        test_tables.test_a_deleted_stack_leaves_its_tables,
        "AuditTable",
    ),
}

MISSING: Final = {
    "submitter": ("SubmitterPolicy", "Tasks", "dynamodb:PartiQLInsert"),
    "sweeper": ("SweeperPolicy", "AddToTheAudit", "dynamodb:PutItem"),
    "operator": ("OperatorPolicy", "DeadLetters", "dynamodb:DeleteItem"),
    "reader": ("ReaderPolicy", "Audit", "dynamodb:Query"),
}
TOO_MUCH: Final = {
    "submitter": ("SubmitterPolicy", "Attempts", "dynamodb:DeleteItem"),
    "sweeper": ("SweeperPolicy", "AddToTheAudit", "dynamodb:Query"),
    "operator": ("OperatorPolicy", "Audit", "dynamodb:DeleteItem"),
    "reader": ("ReaderPolicy", "Tasks", "dynamodb:PutItem"),
}

WHOLE: Final[dict[str, tuple[Mutation, Callable[..., None]]]] = {
    "objects that go too early": (
        lambda stack: properties(stack, "BodyBucket")["LifecycleConfiguration"]["Rules"][0].update(
            ExpirationInDays=30
        ),
        test_tables.test_objects_live_as_long_as_their_prefix_says,
    ),
    "a rule for what stays": (
        lambda stack: properties(stack, "BodyBucket")["LifecycleConfiguration"]["Rules"][0].update(
            Prefix="keep/"
        ),
        test_tables.test_objects_live_as_long_as_their_prefix_says,
    ),
    "a wildcard action": (
        lambda stack: with_another(stack, "SweeperPolicy", "Tasks", "dynamodb:*"),
        test_policies.test_no_action_is_a_wildcard,
    ),
    "any resource": (
        lambda stack: statement(stack, "ReaderPolicy", "Audit").update(Resource="*"),
        test_policies.test_everything_is_granted_on_named_resources,
    ),
    "a whole control table": (
        lambda stack: statement(stack, "SubmitterPolicy", "References").pop("Condition"),
        test_policies.test_each_right_on_the_control_table_names_its_partitions,
    ),
    "an audit that can be changed": (
        lambda stack: with_another(stack, "OperatorPolicy", "Audit", "dynamodb:UpdateItem"),
        test_policies.test_nobody_changes_the_audit,
    ),
    "a schedule that repeats": (
        lambda stack: properties(stack, "Schedule")["Target"]["RetryPolicy"].update(
            MaximumRetryAttempts=185
        ),
        test_starting.test_the_schedule_neither_repeats_nor_loses_a_sweep,
    ),
    "a sweeper that is run again": (
        lambda stack: properties(stack, "SweeperFunction")["EventInvokeConfig"].update(
            MaximumRetryAttempts=2
        ),
        test_starting.test_a_sweep_that_failed_is_not_run_again,
    ),
    "a filter on another name": (
        lambda stack: properties(stack, "WakeUpMapping")["FilterCriteria"]["Filters"][0].update(
            Pattern='{"dynamodb":{"NewImage":{"state":{"S":["PENDING"]}}}}'
        ),
        test_starting.test_work_that_waits_wakes_a_sweeper,
    ),
    "a clean-up that gives up early": (
        lambda stack: properties(stack, "CleanUpMapping").update(MaximumRecordAgeInSeconds=60),
        test_starting.test_clean_up_waits_as_long_as_the_stream_remembers,
    ),
    "a key that alarms can't use": (
        lambda stack: properties(stack, "AlarmKey")["KeyPolicy"]["Statement"].pop(),
        test_watching.test_alarms_can_publish_to_the_encrypted_topic,
    ),
    "an alarm that nobody hears": (
        lambda stack: properties(stack, "PendingAgeAlarm").pop("AlarmActions"),
        test_watching.test_each_alarm_goes_to_the_topic,
    ),
    "logs for ever": (
        lambda stack: properties(stack, "OpsLogs").pop("RetentionInDays"),
        test_watching.test_each_function_has_a_log_with_an_end,
    ),
}


@pytest.mark.parametrize("mistake", TABLES)
def test_a_mistake_in_a_table_is_seen(mistake: str) -> None:
    mutate, check, table = TABLES[mistake]
    mutate(stack := sam())
    with pytest.raises(AssertionError):
        check(stack, table)
    check(sam(), table)


@pytest.mark.parametrize("mistake", WHOLE)
def test_a_mistake_in_the_template_is_seen(mistake: str) -> None:
    mutate, check = WHOLE[mistake]
    mutate(stack := sam())
    with pytest.raises(AssertionError):
        check(stack)
    check(sam())


@pytest.mark.parametrize("role", MISSING)
def test_a_missing_permission_is_seen(role: str, uses: test_policies.Uses) -> None:
    without(stack := sam(), *MISSING[role])
    with pytest.raises(AssertionError):
        test_policies.test_a_role_may_do_what_it_does(stack, uses, role)


@pytest.mark.parametrize("role", TOO_MUCH)
def test_a_permission_too_many_is_seen(role: str, uses: test_policies.Uses) -> None:
    with_another(stack := sam(), *TOO_MUCH[role])
    with pytest.raises(AssertionError):
        test_policies.test_a_role_may_do_nothing_that_it_does_not_do(stack, uses, role)
    with pytest.raises(AssertionError):
        test_policies.test_a_role_is_kept_from_what_is_not_its_own(stack, role)


def test_a_right_too_many_of_a_function_is_seen(uses: test_policies.Uses) -> None:
    stack = sam()
    (policy,) = properties(stack, "OpsRole")["Policies"]
    invoke = {
        "Effect": "Allow",
        "Action": "lambda:InvokeFunction",
        "Resource": {"Fn::GetAtt": ["SweeperFunction", "Arn"]},
    }
    policy["PolicyDocument"]["Statement"].append(invoke)
    with pytest.raises(AssertionError):
        test_policies.test_a_role_may_do_nothing_that_it_does_not_do(stack, uses, "ops function")
    with pytest.raises(AssertionError):
        test_policies.test_a_role_is_kept_from_what_is_not_its_own(stack, "ops function")
