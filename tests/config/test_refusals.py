"""Every refusal names the path, the value, what is accepted, and what may have been meant."""

import pytest

from rdq_core.config.document import document_of
from rdq_core.errors import ConfigInvalid
from tests.config.files import a_file, refused


@pytest.mark.parametrize(
    ("queue", "path", "value", "accepted"),
    [
        ("retry: {max_attempts: 0}", "retry.max_attempts", "0", "from 1 to 100"),
        ("retry: {max_attempts: 101}", "retry.max_attempts", "101", "from 1 to 100"),
        ("retry: {max_attempts: 5.0}", "retry.max_attempts", "5.0", "a whole number"),
        ('retry: {max_attempts: "5"}', "retry.max_attempts", '"5"', "a whole number"),
        ("retry: {max_attempts: true}", "retry.max_attempts", "true", "a whole number"),
        ("retry: {max_attempts: 0x10}", "retry.max_attempts", "0x10", "a whole number"),
        ("retry: {max_attempts: 010}", "retry.max_attempts", "010", "a whole number"),
        ("retry: {max_attempts: 1_0}", "retry.max_attempts", "1_0", "a whole number"),
        ("retry: {max_attempts: }", "retry.max_attempts", "null", "a whole number"),
        ("retry: {initial_backoff: 0s}", "retry.initial_backoff", '"0s"', "from 1ms to 30d"),
        ("retry: {initial_backoff: 31d}", "retry.initial_backoff", '"31d"', "from 1ms to 30d"),
        ("retry: {max_backoff: 60}", "retry.max_backoff", "60", "a duration with its unit"),
        ("retry: {max_backoff: true}", "retry.max_backoff", "true", "a duration with its unit"),
        ("retry: {max_backoff: -1s}", "retry.max_backoff", '"-1s"', "a duration with its unit"),
        (
            "retry: {backoff_multiplier: 0.5}",
            "retry.backoff_multiplier",
            "0.5",
            "from 1 to 1000000",
        ),
        (
            "retry: {backoff_multiplier: .inf}",
            "retry.backoff_multiplier",
            ".inf",
            "from 1 to 1000000",
        ),
        (
            "retry: {backoff_multiplier: 1e999}",
            "retry.backoff_multiplier",
            "1e999",
            "from 1 to 1000000",
        ),
        ("retry: {jitter: .nan}", "retry.jitter", ".nan", "a number from 0 to 1"),
        ("retry: {jitter: NaN}", "retry.jitter", '"NaN"', "a number from 0 to 1"),
        ("retry: {jitter: 1.10}", "retry.jitter", "1.10", "a number from 0 to 1"),
        ("retry: {jitter: true}", "retry.jitter", "true", "a number from 0 to 1"),
        ("execution: {lease: 999ms}", "execution.lease", '"999ms"', "from 1s to 1d"),
        ("execution: {lease: 1:30}", "execution.lease", "1:30", "a duration with its unit"),
        (
            "execution: {handler_timeout: 25h}",
            "execution.handler_timeout",
            '"25h"',
            "from 1ms to 1d",
        ),
        ("execution: {heartbeat: yes}", "execution.heartbeat", "yes", "or auto, or off"),
        ("limits: {max_payload_size: 2MiB}", "limits.max_payload_size", '"2MiB"', "to 1MiB"),
        ("limits: {max_payload_size: 1MB}", "limits.max_payload_size", '"1MB"', "256KiB or 1MiB"),
        ("limits: {task_ttl: never}", "limits.task_ttl", '"never"', "from 1h to 365d"),
        ("limits: {dead_ttl: 30m}", "limits.dead_ttl", '"30m"', "from 1h to 365d, or never"),
        ("dispatch: {rate_limit: 100}", "dispatch.rate_limit", "100", "100/s, 30/m or 5/h"),
        ("dispatch: {rate_limit: 0/s}", "dispatch.rate_limit", '"0/s"', "100/s, 30/m or 5/h"),
        ("dispatch: {batch_size: 501}", "dispatch.batch_size", "501", "from 1 to 500"),
        ("index_shards: 101", "index_shards", "101", "from 1 to 100"),
        ("retry: 5", "retry", "5", "a mapping with the keys max_attempts"),
        ("retry:", "retry", "null", "a mapping with the keys max_attempts"),
        ("classification: {permanent: Foo}", "classification.permanent", '"Foo"', "a list of text"),
        ("handlers: [a]", "handlers", '["a"]', "a mapping from names"),
        ("handlers: {Charge: {}}", "handlers.Charge", '"Charge"', "1 to 240 of a-z 0-9"),
        ("owner: ''", "owner", '""', "printable text of 1 to 256 bytes"),
    ],
)
def test_a_value_that_is_not_accepted(queue: str, path: str, value: str, accepted: str) -> None:
    error = refused(a_file(queue))
    assert error.path == f"queues.billing.{path}"
    assert error.message.startswith(f"queues.billing.{path}: {value} is refused; accepted: ")
    assert accepted in error.message
    assert error.message.endswith("(line 7)")


@pytest.mark.parametrize(
    ("queue", "path", "nearest"),
    [
        ("retry: {max_attempt: 5}", "retry.max_attempt", "did you mean max_attempts?"),
        ("retries: {max_attempts: 5}", "retries", "did you mean retry?"),
        ("dispatch: {ratelimit: 5/s}", "dispatch.ratelimit", "did you mean rate_limit?"),
        ("handlers: {a: {lambda: f, functon: f}}", "handlers.a.functon", "did you mean function?"),
        ("max_attempts: 5", "max_attempts", "max_attempts belongs under retry"),
        ("retry: {lease: 5s}", "retry.lease", "lease belongs under execution"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    queue: str, path: str, nearest: str
) -> None:
    error = refused(a_file(queue))
    everything = f"{error.message}\n{error.hint}"
    assert f"queues.billing.{path}: unknown key (its value is " in everything
    assert "accepted: " in everything
    assert nearest in everything


@pytest.mark.parametrize(
    ("queue", "nearest"),
    [
        (
            "retry: {backoff: exponentional}",
            "accepted: fixed or linear or exponential; did you mean exponential?",
        ),
        (
            "version_mismatch: dead_letter",
            "accepted: run-latest or dead-letter; did you mean dead-letter?",
        ),
        ("dispatch: {host: workers}", "did you mean worker?"),
        ("handlers: {a: {function: f, invocation: asynch}}", "did you mean async?"),
    ],
)
def test_an_unknown_word_is_refused_with_the_nearest_known_one(queue: str, nearest: str) -> None:
    assert nearest in refused(a_file(queue)).message


@pytest.mark.parametrize(
    ("written", "reading"),
    [
        ("NO", "a boolean"),
        ("on", "a boolean"),
        ("Y", "a boolean"),
        ("true", "a boolean"),
        ("1:30", "a number"),
        ("1.10", "a number"),
        ("017", "a number"),
        ("0o17", "a number"),
        ("0x1F", "a number"),
        ("1_000", "a number"),
        ("1e5", "a number"),
        ("3", "a number"),
        (".inf", "a number"),
        ("2026-07-20", "a date"),
        ("null", "nothing"),
    ],
)
@pytest.mark.parametrize(
    "queue",
    [
        "owner: {}",
        "classification: {{retryable: [{}]}}",
        "handlers: {{a: {{function: f, handler_version: {}}}}}",
        "handlers: {{a: {{function: f, outcome: {{field: f, success: [{}]}}}}}}",
    ],
)
def test_what_yaml_would_not_read_as_text_must_be_quoted(
    queue: str, written: str, reading: str
) -> None:
    error = refused(a_file(queue.format(written)))
    assert f"{written} is refused" in error.message
    assert f'YAML reads {written} as {reading}; quote it: "{written}" (line 7)' in error.message


@pytest.mark.parametrize("written", ["NO", "1.10", "017", "2026-07-20", "true", "~", "3"])
def test_a_key_that_yaml_would_not_read_as_text_must_be_quoted(written: str) -> None:
    error = refused(f"config_version: 1\nqueues:\n  {written}: {{}}\n")
    assert "quote it: " in error.message
    assert error.message.endswith("(line 3)")


@pytest.mark.parametrize(
    "name", ["Billing", "a b", "rdq.internal", "rdq-x", "Café", "a" * 241, '"a\\n"']
)
def test_an_odd_queue_name_is_refused(name: str) -> None:
    error = refused(f"config_version: 1\nqueues:\n  {name}: {{}}\n")
    assert error.message.startswith("queues.")
    assert "accepted: a queue name: 1 to 240 of a-z 0-9 . _ -" in error.message


@pytest.mark.parametrize(
    ("queue", "path", "accepted"),
    [
        (
            "execution: {heartbeat: off, lease: 10s}",
            "execution.handler_timeout",
            '"45s" is refused; accepted: at most the lease (10s) while the heartbeat is off',
        ),
        (
            "execution: {heartbeat: 1m}",
            "execution.heartbeat",
            "accepted: an interval shorter than the lease (1m)",
        ),
        (
            "handlers: {a: {function: f, invocation: async, deliver: raw}}",
            "handlers.a.deliver",
            (
                '"raw" is refused; accepted: envelope, '
                "because an async hand-over sends only a reference"
            ),
        ),
        (
            "handlers: {a: {function: f, deliver: envelope, answer: http}}",
            "handlers.a.answer",
            '"http" is refused; accepted: no answer at all with deliver envelope',
        ),
        (
            "handlers: {a: {function: f, deliver: envelope, outcome: {field: s}}}",
            "handlers.a.outcome",
            "accepted: no outcome at all with deliver envelope",
        ),
        (
            "handlers: {a: {function: f, outcome: {field: s, success: [A], permanent: [A]}}}",
            "handlers.a.outcome.permanent",
            "accepted: each value on one list only; 'A' is on success as well",
        ),
        ("handlers: {a: {invocation: sync}}", "handlers.a.function", "is missing; accepted: text"),
        (
            "handlers: {a: {function: f, outcome: {success: [A]}}}",
            "handlers.a.outcome.field",
            "is missing; accepted: text",
        ),
        (
            "dispatch: {burst: 5}",
            "dispatch.burst",
            "5 is refused; accepted: only beside a rate_limit",
        ),
    ],
)
def test_a_broken_relation_names_what_it_breaks(queue: str, path: str, accepted: str) -> None:
    error = refused(a_file(queue))
    assert error.path == f"queues.billing.{path}"
    assert accepted in error.message


def test_relations_are_checked_on_the_merged_result() -> None:
    error = refused(a_file("execution: {lease: 10s}", defaults="execution: {heartbeat: off}"))
    assert error.path == "queues.billing.execution.handler_timeout"


@pytest.mark.parametrize(
    ("defaults", "path"),
    [
        ("retry: {jitter: 2}", "defaults.retry.jitter"),
        ("execution: {heartbeat: off, lease: 1s}", "defaults.execution.handler_timeout"),
        ("handlers: {}", "defaults.handlers"),
    ],
)
def test_bad_defaults_are_refused_even_when_no_queue_uses_them(defaults: str, path: str) -> None:
    assert refused(f"config_version: 1\ndefaults: {{{defaults}}}\n").path == path


def test_a_newer_version_is_refused_before_anything_else_is_looked_at() -> None:
    error = refused("config_version: 2\nfrom_the_future: yes\n")
    assert error.message.startswith("config_version: 2 is refused; accepted: 1")
    assert error.hint is None


@pytest.mark.parametrize("version", ["0", '"1"', "1.0", "true"])
def test_a_version_that_is_no_version_is_refused(version: str) -> None:
    assert refused(f"config_version: {version}\n").path == "config_version"


def test_a_missing_version_is_asked_for() -> None:
    assert refused("queues: {}").message == "config_version: is missing; accepted: 1"


def test_further_problems_are_in_the_hint_and_the_first_in_the_file_leads() -> None:
    error = refused(a_file("retri: 1\nretry: {jitter: 2}\nindex_shards: 0"))
    assert error.path == "queues.billing.retri"
    assert error.hint is not None
    assert error.hint.startswith("2 more to mend:")
    assert "queues.billing.retry.jitter: 2 is refused" in error.hint


def test_long_values_are_shortened() -> None:
    assert len(refused(a_file(f"owner: {'x' * 5000}")).message) < 250


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "text",
        {1: 2},
        {"config_version": 1, "queues": {"a": {1: 2}}},
        {"config_version": 1, "q": object()},
    ],
)
def test_data_of_another_shape_is_refused_from_programs_as_well(data: object) -> None:
    with pytest.raises(ConfigInvalid):
        document_of(data)
