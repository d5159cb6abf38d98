"""What starts the functions: the schedule, the stream and its filters, queues and their limits."""

import json
from typing import Any, Final

import pytest

from rdq_core.domain.task import Status
from rdq_core.runtime.function_url import ALIAS
from rdq_core.stores.dynamodb.claim_check import UNEXPIRING
from rdq_core.stores.dynamodb.schema import STATE, Attr
from tests.infra.templates import Template, as_list, of_type

FUNCTIONS: Final = {"Sweeper", "Kick", "CleanUp", "Ops", "Intake"}
ENDED: Final = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)


def properties(stack: Template, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stack["Resources"][name]["Properties"]
    return found


def patterns(stack: Template, mapping: str) -> list[dict[str, Any]]:
    filters = properties(stack, mapping)["FilterCriteria"]["Filters"]
    return [json.loads(each["Pattern"]) for each in filters]


def fits(pattern: Any, event: Any) -> bool:
    """Whether an event passes a filter, for the kinds of rules that the template has."""
    if isinstance(pattern, dict):
        return isinstance(event, dict) and all(
            fits(rule, event.get(name)) for name, rule in pattern.items()
        )
    return any(
        str(event or "").startswith(rule["prefix"]) if isinstance(rule, dict) else event == rule
        for rule in pattern
    )


def passes(stack: Template, mapping: str, event: dict[str, Any]) -> bool:
    return any(fits(pattern, event) for pattern in patterns(stack, mapping))


def row(status: Status) -> dict[str, Any]:
    return {str(Attr.STATUS): {"S": str(status)}, str(Attr.KIND): {"S": STATE}}


def record(event: str, kind: str = STATE, old: Any = None, new: Any = None) -> dict[str, Any]:
    images = {
        name: image for name, image in (("OldImage", old), ("NewImage", new)) if image is not None
    }
    return {"eventName": event, "dynamodb": {"Keys": {str(Attr.KIND): {"S": kind}}, **images}}


def test_there_are_the_five_functions(stack: Template) -> None:
    assert set(of_type(stack, "AWS::Serverless::Function")) == {
        f"{name}Function" for name in FUNCTIONS
    }


def test_each_function_has_a_role_of_its_own(stack: Template) -> None:
    for name in FUNCTIONS:
        assert properties(stack, f"{name}Function")["Role"] == {
            "Fn::GetAtt": [f"{name}Role", "Arn"]
        }


def test_work_that_waits_wakes_a_sweeper(stack: Template) -> None:
    for event, old in (
        ("INSERT", None),
        ("MODIFY", row(Status.IN_FLIGHT)),
        ("MODIFY", row(Status.DEAD)),
    ):
        assert passes(stack, "WakeUpMapping", record(event, old=old, new=row(Status.PENDING)))


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.PENDING])
def test_nothing_else_wakes_one(stack: Template, status: Status) -> None:
    assert not passes(
        stack, "WakeUpMapping", record("MODIFY", old=row(Status.PENDING), new=row(status))
    )
    assert not passes(stack, "WakeUpMapping", record("REMOVE", old=row(status)))
    assert not passes(stack, "WakeUpMapping", record("INSERT", kind="B#1", new={}))


@pytest.mark.parametrize("status", Status)
def test_a_row_that_is_gone_is_cleaned_up_after(stack: Template, status: Status) -> None:
    assert passes(stack, "CleanUpMapping", record("REMOVE", old=row(status)))


@pytest.mark.parametrize("status", ENDED)
def test_so_is_one_that_is_replaced_by_a_new_life(stack: Template, status: Status) -> None:
    assert passes(
        stack, "CleanUpMapping", record("MODIFY", old=row(status), new=row(Status.PENDING))
    )


def test_content_that_no_rule_expires_goes_with_its_item(stack: Template) -> None:
    lasting, passing = (
        {str(Attr.S3_KEY): {"S": f"{prefix}/1/2"}} for prefix in (UNEXPIRING, "90d")
    )
    assert passes(stack, "CleanUpMapping", record("REMOVE", kind="B#1", old=lasting))
    assert not passes(stack, "CleanUpMapping", record("REMOVE", kind="B#1", old=passing))


def test_ordinary_life_starts_no_clean_up(stack: Template) -> None:
    assert not passes(stack, "CleanUpMapping", record("INSERT", new=row(Status.PENDING)))
    assert not passes(
        stack,
        "CleanUpMapping",
        record("MODIFY", old=row(Status.IN_FLIGHT), new=row(Status.PENDING)),
    )
    assert not passes(
        stack,
        "CleanUpMapping",
        record("MODIFY", old=row(Status.PENDING), new=row(Status.IN_FLIGHT)),
    )


def test_waking_gives_up_when_the_schedule_has_come(stack: Template) -> None:
    mapping = properties(stack, "WakeUpMapping")
    assert (mapping["MaximumRecordAgeInSeconds"], mapping["BisectBatchOnFunctionError"]) == (
        60,
        True,
    )


def test_clean_up_waits_as_long_as_the_stream_remembers(stack: Template) -> None:
    mapping = properties(stack, "CleanUpMapping")
    assert (mapping["MaximumRecordAgeInSeconds"], mapping["BisectBatchOnFunctionError"]) == (
        24 * 3600,
        True,
    )
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"] == {
        "Fn::GetAtt": ["UndeliveredQueue", "Arn"]
    }


def test_the_schedule_neither_repeats_nor_loses_a_sweep(stack: Template) -> None:
    target = properties(stack, "Schedule")["Target"]
    assert target["RetryPolicy"] == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["UndeliveredQueue", "Arn"]}}


def test_a_sweep_that_failed_is_not_run_again(stack: Template) -> None:
    config = properties(stack, "SweeperFunction")["EventInvokeConfig"]
    assert config == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}


def test_an_event_that_the_intake_cannot_store_is_kept(stack: Template) -> None:
    config = properties(stack, "IntakeFunction")["EventInvokeConfig"]
    assert config["MaximumRetryAttempts"] == 2
    assert config["DestinationConfig"]["OnFailure"] == {
        "Type": "SQS",
        "Destination": {"Fn::GetAtt": ["UndeliveredQueue", "Arn"]},
    }


def test_only_who_signs_reaches_the_ops_function(stack: Template) -> None:
    assert properties(stack, "OpsUrl")["AuthType"] == "AWS_IAM"
    assert of_type(stack, "AWS::Lambda::Permission") == {}


def test_the_url_calls_the_alias_that_the_function_takes_for_proof(stack: Template) -> None:
    url, alias = stack["Resources"]["OpsUrl"], properties(stack, "OpsUrlAlias")
    assert (url["Properties"]["Qualifier"], alias["Name"]) == (ALIAS, ALIAS)
    assert "OpsUrlAlias" in as_list(url["DependsOn"])
    # A version would stay behind when the code changes.
    assert alias["FunctionVersion"] == "$LATEST"
