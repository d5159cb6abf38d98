"""The settings in effect: layers, plain data, relations."""

import copy
import json
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest

from rdq_core.config.document import parse_document
from rdq_core.config.effective import effective
from rdq_core.config.ladder import ladder
from rdq_core.config.merge import deep_merge, merged
from rdq_core.config.schema import json_schema
from rdq_core.config.sections import Section, keys_of
from rdq_core.config.settings import (
    Dispatch,
    Host,
    QueueDefaults,
    QueueSettings,
    RateLimit,
    Retry,
    VersionMismatch,
)
from rdq_core.config.targets import Answer, Deliver, HandlerTarget, InvocationMode, OutcomeField
from rdq_core.domain.backoff import BackoffPolicy
from rdq_core.errors import ConfigInvalid
from rdq_core.handlers.policy import layer_of
from tests.config.files import FULL

SECOND = timedelta(seconds=1)


def settings_of(**keys: Any) -> QueueSettings:
    return effective("billing", keys, {})


def test_the_whole_file_comes_through() -> None:
    document = parse_document(FULL)
    settings = effective("payments.charge", document.queues["payments.charge"], document.defaults)
    assert (settings.queue, settings.owner) == ("payments.charge", "team-payments")
    assert settings.retry.max_attempts == 8
    assert settings.retry.policy == BackoffPolicy(initial=2 * SECOND, jitter=0.2)
    assert settings.classification.retryable == ("botocore.exceptions.*", "*Timeout*")
    assert settings.version_mismatch is VersionMismatch.DEAD_LETTER
    assert settings.dispatch.claim_limit == RateLimit(count=100, period=SECOND, burst=100)
    assert settings.handlers["charge-payment"] == HandlerTarget(
        function="payments-charge:live",
        answer=Answer.HTTP,
        handler_version="v3",
        outcome=OutcomeField(
            field="status", success=("OK",), retryable=("THROTTLED",), permanent=("FAILED",)
        ),
    )


def test_a_queue_that_says_nothing_gets_what_is_built_in() -> None:
    built_in = parse_document(FULL).defaults
    said = effective("billing", {}, built_in)
    unsaid = settings_of()
    assert unsaid.retry == said.retry
    assert (unsaid.execution, unsaid.limits, unsaid.index_shards) == (
        said.execution,
        said.limits,
        said.index_shards,
    )
    assert unsaid.dispatch.claim_limit is None


def test_per_key_the_highest_layer_wins() -> None:
    layers: list[dict[str, Any]] = [
        {"retry": {"max_attempts": attempts, **({key: "1h"} if key else {})}}
        for attempts, key in ((2, ""), (3, ""), (4, "max_backoff"), (5, ""))
    ]
    defaults, definition, declared, override = layers
    read = [
        effective("q", {}, {}),
        effective("q", {}, defaults),
        effective("q", {}, defaults, definition=definition),
        effective("q", declared, defaults, definition=definition),
        effective("q", declared, defaults, override, definition),
    ]
    assert [settings.retry.max_attempts for settings in read] == [5, 2, 3, 4, 5]
    assert read[-1].retry.policy.maximum == timedelta(hours=1)


def test_a_definition_says_the_keys_that_it_gives_and_the_defaults_the_others() -> None:
    defaults = {"retry": {"jitter": 0.5, "max_backoff": "1h", "max_attempts": 9}, "index_shards": 7}
    settings = effective("q", {}, defaults, definition={"retry": {"max_attempts": 3}})
    assert settings.retry.policy == BackoffPolicy(jitter=0.5, maximum=timedelta(hours=1))
    assert settings.retry.max_attempts == 3
    assert settings.index_shards == 7


def test_three_attempts_are_the_same_policy_declared_and_defined() -> None:
    declared = effective("q", {"retry": Retry(max_attempts=3).layer()}, {})
    defined = effective("q", {}, {}, definition=layer_of("tasks.t", retry=Retry(max_attempts=3)))
    assert declared.retry == defined.retry == Retry(max_attempts=3, jitter=0.2)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (section, key)
        for section in (Retry, Dispatch, QueueDefaults, HandlerTarget)
        for key, setting in keys_of(section).items()
        if "enum" in getattr(setting.kind, "json", ())
    ],
)
def test_the_words_that_a_type_checker_accepts_are_those_of_the_enumeration(
    section: type[Section], key: str
) -> None:
    given, _ = get_args(get_type_hints(section)[key])
    words = [word for each in get_args(given) for word in get_args(each)]
    assert words == keys_of(section)[key].kind.json["enum"]  # type: ignore[attr-defined]


def test_a_stored_number_beyond_any_float_is_a_refusal() -> None:
    with pytest.raises(ConfigInvalid, match="backoff_multiplier"):
        QueueSettings.from_plain({"queue": "q", "retry": {"backoff_multiplier": 10**400}})


def test_a_definition_without_retry_leaves_it_to_the_defaults() -> None:
    settings = effective(
        "q", {}, {"retry": {"jitter": 0.5}}, definition={"execution": {"handler_timeout": "10s"}}
    )
    assert settings.retry.policy.jitter == 0.5
    assert settings.execution.handler_timeout == 10 * SECOND


def test_merging_replaces_lists_whole_and_changes_neither_layer() -> None:
    below, above = {"a": {"list": [1, 2], "kept": 1}, "b": 1}, {"a": {"list": [3]}, "c": {"d": 2}}
    before = copy.deepcopy((below, above))
    assert deep_merge(below, above) == {"a": {"list": [3], "kept": 1}, "b": 1, "c": {"d": 2}}
    assert (below, above) == before


def test_two_valid_layers_may_contradict_each_other() -> None:
    declared, override = {"execution": {"heartbeat": "off"}}, {"execution": {"lease": "10s"}}
    effective("q", declared, {})
    effective("q", {}, {}, override)
    with pytest.raises(ConfigInvalid, match=r"queues\.q\.execution\.handler_timeout"):
        effective("q", declared, {}, override)


@pytest.mark.parametrize(
    ("execution", "every"),
    [
        ({"lease": "60s", "handler_timeout": "30s"}, None),
        ({"lease": "60s", "handler_timeout": "30001ms"}, 20 * SECOND),
        ({"lease": "60s", "handler_timeout": "1h"}, 20 * SECOND),
        ({"lease": "1s", "handler_timeout": "1s"}, timedelta(milliseconds=333)),
        ({"heartbeat": "off"}, None),
        ({"heartbeat": "5s", "handler_timeout": "1s"}, 5 * SECOND),
    ],
)
def test_the_heartbeat_is_automatic_unless_said(
    execution: dict[str, str], every: timedelta | None
) -> None:
    assert settings_of(execution=execution).execution.heartbeat_every == every


@pytest.mark.parametrize(
    ("dispatch", "burst"),
    [
        ({"rate_limit": "100/s"}, 100),
        ({"rate_limit": "90/m"}, 1),
        ({"rate_limit": "5/h"}, 1),
        ({"rate_limit": "600/m"}, 10),
        ({"rate_limit": "100/s", "burst": 7}, 7),
    ],
)
def test_a_burst_is_a_seconds_worth_unless_given(dispatch: dict[str, Any], burst: int) -> None:
    limit = settings_of(dispatch=dispatch).dispatch.claim_limit
    assert limit is not None
    assert limit.burst == burst


def test_a_queue_can_lift_the_limit_of_its_defaults() -> None:
    defaults = {"dispatch": {"rate_limit": "5/s", "burst": 2}}
    assert (
        effective("q", {"dispatch": {"rate_limit": "none"}}, defaults).dispatch.claim_limit is None
    )


@pytest.mark.parametrize(
    ("keys", "host"),
    [
        ({}, Host.WORKER),
        ({"handlers": {"a": {"function": "f"}}}, Host.SWEEPER),
        ({"dispatch": {"host": "any"}}, Host.ANY),
        ({"dispatch": {"host": "worker"}, "handlers": {"a": {"function": "f"}}}, Host.WORKER),
    ],
)
def test_the_host_follows_from_where_the_handlers_are(keys: dict[str, Any], host: Host) -> None:
    assert settings_of(**keys).host is host


@pytest.mark.parametrize(
    ("stored", "shards_ever"), [({}, 4), ({"shards_ever": 2}, 4), ({"shards_ever": 9}, 9)]
)
def test_shards_ever_is_never_less_than_the_shards_there_are(
    stored: dict[str, int], shards_ever: int
) -> None:
    settings = QueueSettings.from_plain({"queue": "q", "index_shards": 4, **stored})
    assert settings.shards_ever == shards_ever
    assert QueueSettings.from_plain(settings.to_plain()) == settings


def test_a_hand_over_delivers_an_envelope() -> None:
    target = settings_of(handlers={"a": {"function": "f", "invocation": "async"}}).handlers["a"]
    assert (target.invocation, target.deliver) == (InvocationMode.ASYNC, Deliver.ENVELOPE)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"owner": "a", "runbook": "b", "limits": {"dead_ttl": "30d", "max_payload_size": 1000}},
        {"dispatch": {"rate_limit": "30/m", "burst": 3}, "execution": {"heartbeat": "7s"}},
        {
            "handlers": {
                "a": {"function": "f", "invocation": "async"},
                "b": {"function": "g", "outcome": {"field": "s"}},
            }
        },
    ],
)
def test_settings_survive_plain_json(keys: dict[str, Any]) -> None:
    settings = settings_of(**keys)
    assert QueueSettings.from_plain(json.loads(json.dumps(settings.to_plain()))) == settings


def test_the_merged_layers_are_plain_data_of_the_same_settings() -> None:
    plain = json.loads(
        json.dumps(merged("q", {"owner": "a"}, {}) | {"revision": 7, "paused": True, "newer": 1})
    )
    settings = QueueSettings.from_plain(plain)
    assert (settings.owner, settings.revision, settings.paused) == ("a", 7, True)


def test_changing_merged_settings_changes_no_others() -> None:
    before = copy.deepcopy(merged("billing", {}, {}))
    merged("billing", {}, {})["dispatch"] |= {"rate_limit": "5/s"}
    assert merged("billing", {}, {}) == before


@pytest.mark.parametrize(
    "garbage", [None, True, -1, "garbage", 1.5, [], [1], {}, {"a": 1}, float("nan")]
)
@pytest.mark.parametrize("path", [
    "queue", "owner", "retry", "retry.max_attempts", "retry.backoff", "retry.initial_backoff",
    "retry.jitter", "retry.backoff_multiplier", "execution.lease", "execution.heartbeat",
    "classification.permanent", "limits.max_payload_size", "limits.dead_ttl", "dispatch.host",
    "dispatch.claim_limit", "dispatch.burst", "handlers", "handlers.a", "handlers.a.function",
    "handlers.a.deliver", "handlers.a.outcome", "handlers.a.outcome.success",
    "version_mismatch", "index_shards", "revision",
])  # fmt: skip
def test_garbage_in_stored_data_is_harmless_or_a_refusal_and_no_other_error(
    path: str, garbage: object
) -> None:
    stored: dict[str, Any] = merged(
        "q", {"handlers": {"a": {"function": "f", "outcome": {"field": "s"}}}}, {}
    )
    stored["dispatch"] |= {"rate_limit": "5/s"}
    data = json.loads(json.dumps(stored))
    *sections, key = path.split(".")
    inner = data
    for section in sections:
        inner = inner[section]
    inner[key] = garbage
    with suppress(ConfigInvalid):
        QueueSettings.from_plain(data)


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_stored_data_of_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(ConfigInvalid):
        QueueSettings.from_plain(data)


def test_the_ladder_shows_every_attempt_and_when_a_task_dies() -> None:
    retry = {"max_attempts": 4, "initial_backoff": "10s", "max_backoff": "30s", "jitter": 0.2}
    steps = ladder(settings_of(retry=retry, execution={"handler_timeout": "5s"}))
    rows = [
        (rung.attempt, rung.earliest / SECOND, rung.middle / SECOND, rung.latest / SECOND)
        for rung in steps.rungs
    ]
    assert rows == [(1, 0, 0, 0), (2, 8, 10, 12), (3, 24, 30, 36), (4, 48, 60, 72)]
    assert steps.last.attempt == 4
    assert steps.dies_at_worst == 72 * SECOND + 4 * 5 * SECOND


def test_a_single_attempt_is_a_ladder_of_one_rung() -> None:
    steps = ladder(settings_of(retry={"max_attempts": 1}))
    assert [rung.latest for rung in steps.rungs] == [timedelta(0)]


def test_the_longest_ladder_fits() -> None:
    retry = {"max_attempts": 100, "initial_backoff": "30d", "max_backoff": "30d", "jitter": 1.0}
    assert ladder(settings_of(retry=retry)).last.latest == 99 * 2 * timedelta(days=30)


def test_the_json_schema_describes_every_key_and_stays_serialisable() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["required"] == ["config_version"]
    assert all(part["additionalProperties"] is False for part in schema["$defs"].values())
    retry = schema["$defs"]["Retry"]["properties"]
    assert retry["max_attempts"] == {
        "title": "Max Attempts",
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "description": "Attempts in all, the first included.",
    }


def test_reading_settings_loads_neither_pydantic_nor_yaml() -> None:
    program = (
        "import sys, rdq_core.config.effective, rdq_core.config.ladder\n"
        "from rdq_core.config.settings import QueueSettings\n"
        "QueueSettings.from_plain({'queue': 'q'})\n"
        "print([name for name in ('pydantic', 'yaml', 'difflib', 'boto3') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"
