"""Configuration written in Python is the document that a file would have been."""

import json
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from rdq_core.config import builder
from rdq_core.config.document import parse_document
from rdq_core.config.schema import json_schema
from rdq_core.errors import ConfigInvalid
from tests.config.files import FULL

CHARGE = builder.Queue(
    owner="team-payments",
    runbook="https://wiki.example/payments-dlq",
    retry=builder.Retry(max_attempts=8, initial_backoff=timedelta(seconds=2)),
    classification=builder.Classification(
        retryable=["botocore.exceptions.*", "*Timeout*"], permanent=("*.ValidationError",)
    ),
    version_mismatch="dead-letter",
    handlers={
        "charge-payment": builder.HandlerTarget(
            function="payments-charge:live",
            invocation="sync",
            deliver="raw",
            answer="http",
            handler_version="v3",
            outcome=builder.OutcomeField(
                field="status", success=["OK"], retryable=["THROTTLED"], permanent=["FAILED"]
            ),
        )
    },
)
DEFAULTS = builder.Queue(
    retry=builder.Retry(
        max_attempts=5,
        backoff="exponential",
        initial_backoff="1s",
        backoff_multiplier=2.0,
        max_backoff=timedelta(minutes=10),
        jitter=0.2,
    ),
    execution=builder.Execution(
        lease="60s",
        handler_timeout=timedelta(seconds=45),
        heartbeat="auto",
        dispatch_give_up=timedelta(days=1),
    ),
    limits=builder.Limits(
        max_payload_size="1MiB", task_ttl="24h", dead_ttl="never", max_redrives=10
    ),
    dispatch=builder.Dispatch(
        host="auto",
        batch_size=32,
        poll_interval="1s",
        concurrency=8,
        max_sweepers=10,
        rate_limit="100/s",
    ),
    index_shards=4,
)


def test_a_document_built_in_python_is_the_one_that_a_file_says() -> None:
    built = builder.document({"payments.charge": CHARGE}, defaults=DEFAULTS)

    assert parse_document(json.dumps(built)) == parse_document(FULL)


def test_what_is_not_said_is_not_there() -> None:
    assert builder.document({"billing": builder.Queue()}) == {
        "config_version": 1,
        "queues": {"billing": {}},
    }


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        (
            builder.Queue(retry=builder.Retry(max_attempts=0)),
            "queues.billing.retry.max_attempts: 0 is refused",
        ),
        (
            builder.Queue(execution=builder.Execution(lease=timedelta(0))),
            'queues.billing.execution.lease: "0s"',
        ),
        (
            builder.Queue(execution=builder.Execution(heartbeat="1m")),
            "an interval shorter than the lease (1m)",
        ),
        (
            builder.Queue(retry={"max_atempts": 3}),  # type: ignore[arg-type]
            "queues.billing.retry.max_atempts: unknown key",
        ),
        (
            builder.Queue(handlers={"charge": {"function": "f", "deliver_as": "raw"}}),  # type: ignore[dict-item]
            "queues.billing.handlers.charge.deliver_as: unknown key",
        ),
    ],
)
def test_what_a_file_may_not_say_is_refused_in_the_same_words(
    queue: builder.Queue, message: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        builder.document({"billing": queue})

    assert message in str(refused.value)


def test_a_mapping_in_place_of_a_section_says_what_it_says_in_a_file() -> None:
    mapping: Any = {"handler_timeout": "50s"}
    handlers: Any = {
        "charge": {"function": "charges"},
        "refund": builder.HandlerTarget(function="refunds"),
    }
    document = builder.document({"billing": builder.Queue(execution=mapping, handlers=handlers)})

    assert document["queues"]["billing"] == {
        "execution": mapping,
        "handlers": {"charge": {"function": "charges"}, "refund": {"function": "refunds"}},
    }


@pytest.mark.parametrize(
    "built",
    [
        builder.Queue,
        builder.Retry,
        builder.Execution,
        builder.Classification,
        builder.Limits,
        builder.Dispatch,
        builder.HandlerTarget,
        builder.OutcomeField,
    ],
)
def test_the_builder_knows_every_key_of_the_schema_and_no_other(built: Any) -> None:
    keys = json_schema()["$defs"][built.__name__]["properties"]
    assert {each.name for each in fields(built)} == set(keys)
