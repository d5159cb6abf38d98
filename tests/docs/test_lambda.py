"""docs/lambda.md says what the code does: its handlers exist, its configuration is valid, its
answer is read.
"""

import json
import re
from pathlib import Path

import pytest

from rdq_core.config.document import parse_document
from rdq_core.config.targets import Deliver, HandlerTarget
from rdq_core.domain.outcome import RetryAfter
from rdq_core.handlers.aws_lambda.answers import read_answer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "lambda.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return str(text)


def test_every_handler_that_is_named_exists() -> None:
    named = re.findall(r"`functions\.(\w+)\.(\w+)`", TEXT)
    assert len(named) == 5
    for module, name in named:
        assert re.search(
            rf"^def {name}\(", (ROOT / "functions" / f"{module}.py").read_text(), re.MULTILINE
        )


def test_the_configuration_is_valid() -> None:
    assert list(parse_document(block("yaml")).queues) == ["payments.charge"]


def test_the_answer_is_read_as_it_says() -> None:
    target = HandlerTarget(function="f", deliver=Deliver.ENVELOPE)
    with pytest.raises(RetryAfter, match="until nine"):
        read_answer(target, json.dumps(json.loads(block("json"))).encode())
