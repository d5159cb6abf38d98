"""Logs end, alarms are heard, and the dashboard is one."""

import json
from typing import Any

import pytest

from tests.infra.templates import Template, of_type
from tests.infra.test_starting import FUNCTIONS, properties


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_function_writes_to_its_own_log(stack: Template, name: str) -> None:
    assert properties(stack, f"{name}Function")["LoggingConfig"]["LogGroup"] == {
        "Ref": f"{name}Logs"
    }


def test_each_function_has_a_log_with_an_end(stack: Template) -> None:
    logs = of_type(stack, "AWS::Logs::LogGroup")
    assert set(logs) == {f"{name}Logs" for name in FUNCTIONS}
    assert [
        name
        for name, log in logs.items()
        if log.get("RetentionInDays") != {"Ref": "LogRetentionDays"}
    ] == []


def test_each_alarm_goes_to_the_topic(stack: Template) -> None:
    for name, alarm in of_type(stack, "AWS::CloudWatch::Alarm").items():
        assert alarm.get("AlarmActions") == [{"Ref": "AlarmTopic"}], name
        silence = "breaching" if name == "NoSweepsAlarm" else "notBreaching"
        assert alarm["TreatMissingData"] == silence, name


def test_that_nothing_sweeps_is_heard_of(stack: Template) -> None:
    """Every other alarm lives on what sweeps tell: without them there is nothing to hear."""
    alarm = properties(stack, "NoSweepsAlarm")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (
        "AWS/Lambda",
        "Invocations",
        "Sum",
    )
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "SweeperFunction"}}]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 600


def test_alarms_can_publish_to_the_encrypted_topic(stack: Template) -> None:
    assert properties(stack, "AlarmTopic")["KmsMasterKeyId"] == {"Fn::GetAtt": ["AlarmKey", "Arn"]}
    cloudwatch = {"Service": "cloudwatch.amazonaws.com"}
    rights = {
        place: {
            action
            for statement in document["Statement"]
            if statement["Principal"] == cloudwatch and statement["Effect"] == "Allow"
            for action in (
                [statement["Action"]]
                if isinstance(statement["Action"], str)
                else statement["Action"]
            )
        }
        for place, document in (
            ("key", properties(stack, "AlarmKey")["KeyPolicy"]),
            ("topic", properties(stack, "AlarmTopicPolicy")["PolicyDocument"]),
        )
    }
    assert rights == {"key": {"kms:Decrypt", "kms:GenerateDataKey"}, "topic": {"sns:Publish"}}


def test_the_dashboard_shows_what_matters(stack: Template) -> None:
    body: Any = json.loads(properties(stack, "Dashboard")["DashboardBody"]["Fn::Sub"])
    shown = json.dumps(body)
    for metric in (
        "dlq_depth",
        "oldest_pending_age_seconds",
        "handler_duration_ms",
        "lateness_ms",
        "dispatch_failed",
    ):
        assert f'MetricName=\\"{metric}\\"' in shown.replace("\\\\\\", "\\"), metric
    assert any("USD" in widget["properties"]["title"] for widget in body["widgets"])
