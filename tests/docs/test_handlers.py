"""docs/handlers.md: every member of the context is described, and each idempotency recipe survives
a repeat and a stale worker.

`test_readme` runs the blocks as they stand.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdq_core import TaskContext
from rdq_core.testing.embedded import embedded

TEXT = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text(encoding="utf-8")


def recipe(heading: str) -> dict[str, Any]:
    """The names that a recipe's code block defines."""
    section = TEXT.partition(f"### {heading}\n")[2]
    (block, *_) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(block, heading, "exec"), names)
    return names


def test_every_member_of_the_context_is_described() -> None:
    described = set(re.findall(r"^\| `ctx\.(\w+)", TEXT, re.MULTILINE))
    assigned = set(re.findall(r"self\.([a-z]\w*) = ", _source_of(TaskContext.__init__)))
    defined = {name for name in vars(TaskContext) if not name.startswith("_")}
    assert described == assigned | defined


def _source_of(function: Callable[..., Any]) -> str:
    import inspect

    return inspect.getsource(function)


def test_a_conditional_write_has_its_effect_once() -> None:
    add_credit = recipe("A conditional write in DynamoDB")["add_credit"]
    with embedded({}) as local:

        def balance() -> int:
            key = {"pk": {"S": "ada"}, "sk": {"S": "balance"}}
            item = local.client.get_item(TableName=local.tables.audit, Key=key)["Item"]
            return int(item["cents"]["N"])

        for _ in range(2):
            add_credit(local.client, local.tables.audit, "ada", 500, "task-1")
        assert balance() == 500
        add_credit(local.client, local.tables.audit, "ada", 500, "task-2")
        assert balance() == 1000


def test_a_conditional_write_has_its_effect_once_when_its_answer_is_lost() -> None:
    add_credit = recipe("A conditional write in DynamoDB")["add_credit"]
    with embedded({}) as local:
        with local.faults() as faults:
            faults.lose_answer("TransactWriteItems")
            try:
                add_credit(local.client, local.tables.audit, "ada", 500, "task-1")
            except Exception:  # noqa: BLE001 - whatever a handler raises is tried again
                add_credit(local.client, local.tables.audit, "ada", 500, "task-1")
        key = {"pk": {"S": "ada"}, "sk": {"S": "balance"}}
        item = local.client.get_item(TableName=local.tables.audit, Key=key)["Item"]
        assert item["cents"] == {"N": "500"}


def test_a_conditional_write_that_failed_for_another_reason_is_no_success() -> None:
    add_credit = recipe("A conditional write in DynamoDB")["add_credit"]
    with embedded({}) as local:
        with local.faults() as faults:
            faults.reject(
                "ProvisionedThroughputExceededException", "TransactWriteItems", times=None
            )
            with pytest.raises(local.client.exceptions.ClientError):
                add_credit(local.client, local.tables.audit, "ada", 500, "task-1")
        key = {"pk": {"S": "applied#task-1"}, "sk": {"S": "-"}}
        assert "Item" not in local.client.get_item(TableName=local.tables.audit, Key=key)


def test_an_api_that_gets_the_same_key_twice_charges_once() -> None:
    bank = recipe("An external API's idempotency key")["Bank"]()
    with pytest.raises(TimeoutError):
        bank.charge(500, idempotency_key="task-1")
    assert bank.charge(500, idempotency_key="task-1") == "ch_task-1"
    assert bank.charges == {"task-1": 500}


def test_a_stale_fencing_token_changes_nothing() -> None:
    publish = recipe("A fencing token")["publish"]
    with embedded({}) as local:

        def text() -> str:
            key = {"pk": {"S": "d-1"}, "sk": {"S": "published"}}
            item = local.client.get_item(TableName=local.tables.audit, Key=key)["Item"]
            return str(item["body"]["S"])

        assert publish(local.client, local.tables.audit, "d-1", "first", 41)
        assert publish(local.client, local.tables.audit, "d-1", "second", 42)
        assert not publish(local.client, local.tables.audit, "d-1", "stale", 41)
        assert text() == "second"
        assert publish(local.client, local.tables.audit, "d-1", "second, once more", 42)
        assert text() == "second, once more"
