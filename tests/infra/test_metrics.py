"""Alarms and dashboard use metrics that functions really emit, under the same dimensions."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from aws_lambda_powertools.metrics import MetricUnit

from rdq_core.runtime.hosting import SERVICE, host_from_env
from rdq_core.runtime.telemetry import NAMESPACE
from rdq_core.stores.dynamodb.clock import StorageClock
from rdq_core.stores.dynamodb.schema import Tables
from tests.engine.world import QUEUE
from tests.functions.test_telemetry import Told, lines
from tests.infra.templates import Template, of_type
from tests.support.functions import failed, refused

pytestmark = pytest.mark.usefixtures("function_logs")

Metrics = set[tuple[str, frozenset[str]]]
_SEARCH: Final = re.compile(
    r"SEARCH\('\{rdq,([a-z_,]+)\} MetricName=\"(\w+)\" service=\"\$\{AWS::StackName\}\"'"
)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Metrics:
    """Every metric that a sweeper tells of tasks that are retried, die and can't be delivered, by
    its dimensions.
    """
    stage = Told(dispatch={"concurrency": 1})  # so that each answer is the same task's each time
    too_long = {"handler_timeout": "5m", "lease": "9m"}
    stage.world.configure(
        "slow", handlers={"charge": {"function": "charge-fn"}}, execution=too_long
    )
    stage.world.functions.answer(
        failed(errorType="E"), refused("TooManyRequestsException"), failed(errorType="E")
    )
    stage.submit(2)
    clock = StorageClock(stage.world.clock, probe=lambda: None)
    for _ in range(4):
        stage.swept()
        stage.world.clock.advance("1m")
    with replace(stage.host, parts=replace(stage.world.parts, clock=clock)).invocation():
        pass
    return set(_metrics(lines(capsys)))


def _metrics(told: list[dict[str, Any]]) -> Iterator[tuple[str, frozenset[str]]]:
    for record in told:
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
            assert directive["Namespace"] == NAMESPACE
            for names in directive["Dimensions"]:
                yield from ((metric["Name"], frozenset(names)) for metric in directive["Metrics"])


def test_each_alarm_looks_at_a_metric_that_is_told(stack: Template, told: Metrics) -> None:
    alarms = [
        each
        for each in of_type(stack, "AWS::CloudWatch::Alarm").values()
        if each["Namespace"] == NAMESPACE
    ]
    wanted = {
        (each["MetricName"], frozenset(name["Name"] for name in each["Dimensions"]))
        for each in alarms
    }
    assert {metric for metric, _ in wanted} == {
        "dlq_depth",
        "oldest_pending_age_seconds",
        "dispatch_failed",
        "unservable",
        "clock_offset_ms",
    }
    assert wanted - told == set()


def test_each_graph_shows_a_metric_that_is_told(stack: Template, told: Metrics) -> None:
    body = stack["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    expressions = [
        row[0]["expression"]
        for each in json.loads(body)["widgets"]
        for row in each["properties"]["metrics"]
    ]
    found = [_SEARCH.match(expression) for expression in expressions]
    wanted = {(each[2], frozenset(each[1].split(","))) for each in found if each is not None}
    assert (
        len(wanted) == len(expressions) - 1
    )  # attempts are shown twice: by their lateness, and by their cost
    assert wanted - told == set()


def test_a_stack_is_told_from_another_by_the_service(stack: Template) -> None:
    variables = stack["Globals"]["Function"]["Environment"]["Variables"]
    assert variables[SERVICE] == {"Ref": "AWS::StackName"}
    alarms = [
        each
        for each in of_type(stack, "AWS::CloudWatch::Alarm").values()
        if each["Namespace"] == NAMESPACE
    ]
    assert [each["Dimensions"] for each in alarms] == [
        [{"Name": "service", "Value": {"Ref": "AWS::StackName"}}]
    ] * len(alarms)


def test_a_function_tells_its_metrics_under_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**Tables("t-1", "d-1", "c-1", "a-1").as_env(), SERVICE: "rdq-prod"}.items():
        monkeypatch.setenv(name, value)
    host = host_from_env("rdq-sweeper")
    host.metrics.measure("unservable", 1, MetricUnit.Count, queue=QUEUE)
    host.metrics.flush()
    assert {record["service"] for record in lines(capsys)} == {"rdq-prod"}


def test_depth_and_age_are_those_of_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Told()
    stage.world.functions.answer(failed(errorType="E"), failed(errorType="E"))
    stage.submit(1)
    for _ in range(2):
        stage.swept()
        stage.world.clock.advance("1m")
    stage.submit(1)
    stage.world.clock.advance("90s")
    capsys.readouterr()
    stage.world.parts.queues.pause(QUEUE, paused=True, now=stage.world.clock.now())
    stage.swept()
    told = {
        name: record for record in lines(capsys) if record.get("queue") == QUEUE for name in record
    }
    assert told["dlq_depth"]["dlq_depth"] == [1.0]
    assert told["oldest_pending_age_seconds"]["oldest_pending_age_seconds"] == [
        92.0
    ]  # and the sweep's two
