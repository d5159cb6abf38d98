"""What functions print: events as JSON records, metrics in CloudWatch's embedded format, and
nothing private.
"""

import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from rdq_core.engine.events import Event
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.runtime.log import log_error
from rdq_core.runtime.sweeping import LambdaInvocation, SweeperFunction, SweepOrder
from rdq_core.runtime.telemetry import LogsAndMetrics, MetricsSink, log_as_json
from tests.engine.world import QUEUE
from tests.functions.stage import Stage
from tests.support.functions import failed, refused

pytestmark = pytest.mark.usefixtures("function_logs")

SECRET = "s3cret"


class Told(Stage):
    """A stage whose function tells as it does on Lambda."""

    def __init__(self, **config: Any) -> None:
        super().__init__(
            **{"retry": {"max_attempts": 2, "initial_backoff": "1s", "jitter": 0}, **config}
        )
        log_as_json()
        metrics = MetricsSink("rdq-sweeper")
        self.world.parts = replace(
            self.world.parts, events=LogsAndMetrics(metrics), on_error=log_error
        )
        self.host = FunctionHost(
            parts=self.world.parts, metrics=metrics, start=self.started, environ=self.host.environ
        )

    def swept(self) -> None:
        with self.host.invocation():
            self.sweep()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics_of(told: list[dict[str, Any]]) -> dict[str, tuple[dict[str, str], list[float]]]:
    """Each metric of a queue in the records for CloudWatch, with its dimensions and values."""
    found: dict[str, tuple[dict[str, str], list[float]]] = {}
    for record in filter(lambda record: "queue" in record, told):
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
            assert directive["Namespace"] == "rdq"
            (names,) = directive["Dimensions"]
            for metric in directive["Metrics"]:
                found[metric["Name"]] = (
                    {name: record[name] for name in names},
                    record[metric["Name"]],
                )
    return found


def test_each_transition_is_one_json_record(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Told()
    stage.world.functions.answer(failed(errorType="E"))
    (task_id,) = stage.submit()
    stage.swept()
    told = [line["message"] for line in lines(capsys) if "message" in line]
    assert [each["event"] for each in told] == [
        "claimed",
        "retry_scheduled",
        "claimed",
        "succeeded",
    ]
    assert {(each["task_id"], each["queue"], each["handler_ref"]) for each in told} == {
        (task_id, QUEUE, "charge")
    }
    assert {"attempt_no", "fencing_token", "outcome", "rule", "code"} <= set(told[1])


def test_metrics_have_the_dimensions_queue_and_handler(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Told()
    throttled = refused("TooManyRequestsException")
    stage.world.functions.answer(
        failed(errorType="E"), b"null", failed(errorType="E"), failed(errorType="E"), throttled
    )
    stage.submit(3)
    for _ in range(3):
        stage.swept()
        stage.world.clock.advance("1m")
    found = metrics_of(lines(capsys))
    of = {"queue": QUEUE, "handler_ref": "charge", "service": "rdq-sweeper"}
    names = {"retries", "success_after_retry", "dead_lettered", "dispatch_failed", "lateness_ms"}
    assert {name: found[name][0] for name in names} == dict.fromkeys(names, of)
    assert found["claim_latency_ms"][0] == {"queue": QUEUE, "service": "rdq-sweeper"}
    dimensions, values = found["handler_duration_ms"]
    assert set(dimensions) == {*of, "outcome"}
    assert all(value >= 0 for value in values)


def test_scheduled_sweeps_emit_the_depth_of_queues_once_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Told(retry={"max_attempts": 1})
    stage.world.functions.answer(
        failed(errorType="E"), failed(errorType="E"), refused("TooManyRequestsException")
    )
    stage.submit(3)
    sweeper = SweeperFunction(stage.host)
    invocation = LambdaInvocation(function="f", worker="w", remaining=timedelta(seconds=30))
    told = []
    for order in (SweepOrder((QUEUE,)), SweepOrder(), SweepOrder()):
        with stage.host.invocation():
            sweeper.sweep(order, invocation)
        told.append(metrics_of(lines(capsys)))
    assert ["dlq_depth" in each for each in told] == [False, True, False]
    assert told[1]["dlq_depth"] == ({"queue": QUEUE, "service": "rdq-sweeper"}, [2.0])
    assert "oldest_pending_age_seconds" in told[1]


def test_an_invocation_with_nothing_to_tell_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Told()
    with stage.host.invocation():
        pass
    assert lines(capsys) == []


def test_metrics_are_printed_also_when_the_invocation_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Told()
    stage.submit()

    def fails() -> None:
        with stage.host.invocation():
            stage.sweep()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert "lateness_ms" in metrics_of(lines(capsys))


def test_more_values_than_a_record_may_have_are_printed_in_several(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Told()
    stage.submit(250)
    stage.swept()
    told = [line for line in lines(capsys) if "lateness_ms" in line]
    assert [len(line["lateness_ms"]) for line in told] == [99, 99, 52]


def test_payloads_headers_and_results_are_in_nothing_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Told()
    answer = json.dumps({"statusCode": 500, "body": SECRET}).encode()
    stage.world.functions.answer(answer, failed(errorType="E", errorMessage=SECRET), answer)
    stage.world.submit(
        json.dumps(SECRET).encode(), headers={"h": SECRET}, content_type="application/json"
    )
    stage.world.submit(
        json.dumps(SECRET).encode(), headers={"h": SECRET}, content_type="application/json"
    )
    stage.swept()
    printed = capsys.readouterr()
    assert "succeeded" in printed.out
    assert SECRET not in printed.out + printed.err


def test_an_event_has_no_room_for_anything_private() -> None:
    hints = get_type_hints(Event)
    allowed = ("str", "int", "EventName", "Outcome", "NoneType")
    kinds = {
        name: [kind.__name__ for kind in getattr(hint, "__args__", (hint,))]
        for name, hint in hints.items()
    }
    assert {name for name, of in kinds.items() if not set(of) <= set(allowed)} == set()
    assert not {each.name for each in fields(Event)} & {
        "payload",
        "headers",
        "result",
        "message",
        "detail",
        "stack",
    }


def test_errors_are_json_records_too(capsys: pytest.CaptureFixture[str]) -> None:
    log_as_json()
    log_error(RuntimeError(SECRET), where="here")
    (told,) = lines(capsys)
    assert (told["level"], told["message"]["where"], told["message"]["error_type"]) == (
        "ERROR",
        "here",
        "RuntimeError",
    )
    assert SECRET not in json.dumps(told)
