"""What docs/ops.md shows is what happens: its requests are answered, its resource is declared, its
table is current.
"""

import json
import re
from typing import Any

import pytest
import yaml

from rdq_core import errors
from rdq_core.runtime.cloudformation import CustomResource
from rdq_core.runtime.operating import OpsFunction
from rdq_core.runtime.problems import Forbidden, problem_of
from tests.docs.ops_reference import DOCUMENT, with_table
from tests.engine.world import QUEUE
from tests.ops.dlq import Dlq

TEXT = DOCUMENT.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("request_", blocks("json"))
def test_every_request_is_answered(request_: str) -> None:
    dlq = Dlq()
    dlq.fill(3, error_type="ReadTimeout")
    dlq.clock.advance("1m")
    answer = OpsFunction(dlq.parts).answer(json.loads(request_))
    assert "problem" not in answer
    if "dlq" in request_:
        assert len(answer.get("items", ())) == 3 or answer["selected"] == 3


def test_the_resource_of_the_template_is_declared() -> None:
    (template,) = map(yaml.safe_load, blocks("yaml"))
    dlq = Dlq()
    sent: list[Any] = []
    event = {
        "RequestType": "Create",
        "ResponseURL": "https://x",
        "ResourceProperties": template["Queues"]["Properties"],
    }
    CustomResource(dlq.parts, send=lambda _url, body: sent.append(json.loads(body))).handle(event)
    assert sent[0]["Status"] == "SUCCESS"
    assert dlq.world.queues.settings(QUEUE).retry.max_attempts == 8


def test_the_table_is_what_the_models_say() -> None:
    assert with_table(TEXT) == TEXT, "make reference writes it anew"


ERRORS = (
    errors.InputInvalid("field", "is wrong"),
    errors.ConfigInvalid("queues", "are wrong"),
    errors.TaskNotFound("no task"),
    errors.QueueNotFound("no queue"),
    errors.TaskConflict("it is CANCELLED"),
    errors.ConfigConflict("somebody was faster"),
    errors.StaleCursor("it is another query's"),
    errors.StoreFailed("no answer", may_have_happened=False),
    errors.Unavailable("no table"),
    Forbidden("nobody"),
    ZeroDivisionError("ours"),
)


def test_every_code_has_the_status_that_the_document_gives_it() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", TEXT, re.MULTILINE)
    told = {
        (code, int(status))
        for status, codes in rows
        for code in re.findall(r"`([a-z]+_?[a-z_]+)`", codes)
    }
    assert {(problem["code"], problem["status"]) for problem in map(problem_of, ERRORS)} == told - {
        ("detail", 503)
    }
