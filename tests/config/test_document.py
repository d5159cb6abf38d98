"""Files as people write them, and the assignments of `queue set`."""

import json
from typing import Any

import pytest
import yaml

from rdq_core.config.document import Document, assign, document_of, parse_document
from rdq_core.config.reader import read
from rdq_core.errors import ConfigInvalid
from tests.config.files import FULL, a_file, refused


def test_a_file_becomes_defaults_and_declared_layers_in_canonical_spelling() -> None:
    document = parse_document(
        a_file("retry: {max_backoff: 3600s}", defaults="limits: {max_payload_size: 1048576}")
    )
    assert document == Document(
        defaults={"limits": {"max_payload_size": "1MiB"}},
        queues={"billing": {"retry": {"max_backoff": "1h"}}},
    )


def test_layers_are_plain_json_data() -> None:
    document = parse_document(FULL)
    assert json.loads(json.dumps(document.queues)) == document.queues
    assert {type(value) for value in document.queues["payments.charge"].values()} == {str, dict}


def test_a_layer_can_be_written_into_a_file_again() -> None:
    document = parse_document(FULL)
    again = {"config_version": 1, "defaults": document.defaults, "queues": document.queues}
    assert parse_document(json.dumps(again)) == parse_document(yaml.safe_dump(again)) == document


def test_json_may_be_indented_by_tabs_and_may_escape_any_character() -> None:
    owner = '"\\ud83d\\ude00 \\u00e9 \\/ \\\\ud83d"'
    text = f'{{\n\t"config_version":1,\n\t"queues":{{"a":{{"owner":{owner}}}}}}}'
    assert parse_document(text).queues["a"]["owner"] == json.loads(text)["queues"]["a"]["owner"]


def test_bytes_with_a_byte_order_mark_are_read() -> None:
    assert parse_document(b"\xef\xbb\xbfconfig_version: 1").queues == {}


@pytest.mark.parametrize(
    "written", ['"NO"', "'1.10'", '"2026-07-20"', "north", "v1.10", "1.2.3", "1h", '"*"']
)
def test_quoted_text_and_unmistakable_text_is_text(written: str) -> None:
    assert parse_document(a_file(f"owner: {written}")).queues["billing"]["owner"] == written.strip(
        "'\""
    )


def test_words_of_the_format_need_no_quotes() -> None:
    document = parse_document(a_file("execution: {heartbeat: off, lease: 1m}"))
    assert document.queues["billing"]["execution"]["heartbeat"] == "off"


def test_an_anchor_may_be_used_again() -> None:
    document = parse_document(
        a_file("classification:\n  permanent: &all [A, B]\n  retryable: *all")
    )
    assert document.queues["billing"]["classification"] == {
        "permanent": ["A", "B"],
        "retryable": ["A", "B"],
    }


@pytest.mark.parametrize(
    ("queue", "path"),
    [
        ("retry: {jitter: 0.1, jitter: 0.2}", "queues.billing.retry.jitter"),
        ("owner: a\nowner: a", "queues.billing.owner"),
        ('owner: a\n"owner": b', "queues.billing.owner"),
    ],
)
def test_a_duplicate_key_is_refused_with_both_lines(queue: str, path: str) -> None:
    error = refused(a_file(queue))
    assert error.path == path
    assert "is given twice, first on line 7; accepted: once" in error.message


def test_a_duplicate_queue_is_refused_in_json_too() -> None:
    error = refused('{"config_version": 1, "queues": {"a": {},\n "a": {}}}')
    assert (
        error.message
        == "queues.a: the key is given twice, first on line 1; accepted: once (line 2)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("config_version: 1\n---\nconfig_version: 1\n", "a second document starts here"),
        ("a: [b", "line "),
        ("a: b: c", "line 1, column"),
        ("a: 'b", "line "),
        ("\tx: 1", "line 1"),
        ("x: \x01", "control characters"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"x: \xff", "is not UTF-8 (byte 3)"),
        ("x" * (1024 * 1024 + 1), "1048577 bytes long; accepted: at most 1048576 bytes"),
        (
            "- 1\n- 2\n",
            "[1, 2] is refused; accepted: a mapping with the keys config_version, defaults, queues",
        ),
        ("a: [*.Foo]", "text that starts with * or & must be quoted"),
    ],
)
def test_what_is_not_one_document_is_refused(text: str | bytes, problem: str) -> None:
    error = refused(text)
    assert error.path == "the file"
    assert problem in error.message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: !!python/object:os.system {}",
            "the tag tag:yaml.org,2002:python/object:os.system is refused",
        ),
        ("a: !!str 5", "the tag tag:yaml.org,2002:str is refused"),
        ("a: !mine 5", "the tag !mine is refused"),
        (
            "a: &x {b: 1}\nc: {<<: *x}",
            "merge keys are refused; accepted: shared keys under `defaults`",
        ),
        (
            "a: [*Timeout]",
            '*Timeout is an alias to YAML, and nothing has this name; quote text: "*Timeout"',
        ),
        ("a: &x [*x]", "*x is an alias to YAML"),
        ("? [a]\n: 1", "this key is not text"),
        ("a: " + "[" * 30 + "]" * 30, "nested too deeply; accepted: at most 20 levels"),
    ],
)
def test_yaml_beyond_plain_data_is_refused(text: str, problem: str) -> None:
    assert problem in refused(text).message


def test_aliases_of_aliases_are_bounded_before_they_are_built() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 30)
    ]
    # Built, they would be more values than any machine can hold.
    assert (
        "too many values, aliases included; accepted: at most 50000"
        in refused("\n".join(lines)).message
    )


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "a: &b\n" * 2])
def test_hostile_nesting_is_a_refusal_and_no_crash(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        read(text)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_both_yaml_parsers_read_the_same(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = parse_document(FULL)
    monkeypatch.setattr("rdq_core.config.reader._Loader", loader)
    assert parse_document(FULL) == expected
    assert 'quote it: "NO" (line 7)' in refused(a_file("owner: NO")).message


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("retry.max_attempts=8", {"retry": {"jitter": 0.1, "max_attempts": 8}}),
        ("retry.jitter = 0.5", {"retry": {"jitter": 0.5}}),
        ("retry={max_backoff: 60s}", {"retry": {"max_backoff": "1m"}}),
        ("index_shards=8", {"retry": {"jitter": 0.1}, "index_shards": 8}),
        ("retry.jitter=", {}),
        ("owner=", {"retry": {"jitter": 0.1}}),
        (
            "classification.permanent=[A, B]",
            {"retry": {"jitter": 0.1}, "classification": {"permanent": ["A", "B"]}},
        ),
        (
            "handlers.a.b.function=f",
            {"retry": {"jitter": 0.1}, "handlers": {"a.b": {"function": "f"}}},
        ),
        (
            "handlers.a.outcome.field=s",
            {"retry": {"jitter": 0.1}, "handlers": {"a": {"outcome": {"field": "s"}}}},
        ),
        (
            "runbook=https://x.example/?a=b",
            {"retry": {"jitter": 0.1}, "runbook": "https://x.example/?a=b"},
        ),
    ],
)
def test_an_assignment_changes_one_key_of_the_layer(
    assignment: str, expected: dict[str, Any]
) -> None:
    assert assign({"retry": {"jitter": 0.1}}, [assignment]) == expected


def test_assignments_apply_in_order_and_leave_the_layer_alone() -> None:
    layer = {"retry": {"jitter": 0.1}}
    assert assign(
        layer,
        ["retry.jitter=0.2", "retry.jitter=0.3", "retry.max_attempts=2", "retry.max_attempts="],
    ) == {"retry": {"jitter": 0.3}}
    assert layer == {"retry": {"jitter": 0.1}}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "retry.max_attempts=x",
            'retry.max_attempts: "x" is refused; accepted: a whole number from 1 to 100',
        ),
        ("retry.max_attempt=8", "did you mean max_attempts?"),
        ("retry.jitter.x=1", "retry.jitter.x: unknown key"),
        ("attempts=8", "attempts: unknown key"),
        ("handlers.a.functon=f", "did you mean function?"),
        ("handlers.A.function=f", "accepted: a handler ref"),
        ("owner=NO", 'quote it: "NO"'),
        ("owner=a: b: c", "owner: line 1"),
        ("classification.permanent=*Timeout*", "text that starts with * or & must be quoted"),
        ("retry.max_attempts", "accepted: KEY=VALUE, such as retry.max_attempts=8"),
        ("=8", "accepted: KEY=VALUE"),
        ("..=8", "unknown key"),
    ],
)
def test_a_bad_assignment_is_refused_under_its_own_key(assignment: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        assign({}, [assignment])
    assert message in caught.value.message


def test_a_key_called_like_the_validators_own_mark_is_refused_like_any_other() -> None:
    with pytest.raises(ConfigInvalid):
        document_of({"config_version": 1, "queues": {"billing": {"[key]": 1}}})
    with pytest.raises(ConfigInvalid):
        document_of({"[key]": None})
