"""The one list of submit options: every door accepts each of them, and stores the same task."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, Final

import pytest

from rdq_core import NewTask, Outbox, Rdq
from rdq_core.cli import submit as command
from rdq_core.domain.ids import derive_id
from rdq_core.domain.task import Task
from rdq_core.engine.submit import SUBMIT_OPTIONS, Draft, TypedSubmitOptions
from rdq_core.errors import InputInvalid
from rdq_core.handlers.new_task import new_task_of
from rdq_core.ops.lines import FIELD_OF_OPTION, task_lines
from rdq_core.runtime.intake import IntakeFunction
from tests.engine.world import QUEUE, World
from tests.functions.stage import Stage
from tests.handlers.mail import Mail, send_email

ID: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
EXAMPLES: Final[Mapping[str, Any]] = {
    "id": ID,
    "key": "order-7",
    "headers": {"shop": "3"},
    "run_at": datetime(2026, 7, 21, tzinfo=UTC),
    "delay": "1h",
    "concurrency_key": "customer-1",
    "target": "order:7",
    "requested_by": "ann",
    "content_type": "application/x-odd",
    "handler_version": "v3",
}
OF_THE_DEFINITION: Final = {"content_type": "a typed task is JSON", "handler_version": "pinned"}
"""Options that a typed task's submit doesn't have, and why."""


def as_json(option: str) -> Any:
    return "2026-07-21T00:00:00Z" if option == "run_at" else EXAMPLES[option]


def by_call(world: World, option: str) -> str:
    given: Any = {option: EXAMPLES[option]}
    return world.rdq.submit(QUEUE, "charge", "x", **given).id


def by_a_value(world: World, option: str) -> str:
    (receipt,) = world.rdq.submit_many(
        [NewTask(QUEUE, "charge", "x", **{option: EXAMPLES[option]})]
    )
    return receipt.id  # type: ignore[union-attr]


def by_a_mapping(world: World, option: str) -> str:
    given = {"queue": QUEUE, "handler_ref": "charge", "payload": "x", option: EXAMPLES[option]}
    (receipt,) = world.rdq.submit_many([given])
    return receipt.id  # type: ignore[union-attr]


def by_a_line(world: World, option: str) -> str:
    given = {"queue": QUEUE, "handler_ref": "charge", "payload_text": "x"}
    given[FIELD_OF_OPTION[option]] = as_json(option)
    empty = Draft(queue="", handler_ref="", payload=b"")
    (line,) = task_lines(BytesIO(json.dumps(given).encode()), empty)
    assert isinstance(line.draft, Draft)
    return world.parts.submitter().submit(line.draft).task.id


def by_the_template_of_a_file(world: World, option: str) -> str:
    template = Draft(
        queue=QUEUE,
        handler_ref="charge",
        payload=b"",
        options={option: EXAMPLES[option]},  # type: ignore[misc]
    )
    (line,) = task_lines(BytesIO(b'{"payload_text": "x"}'), template)
    assert isinstance(line.draft, Draft)
    return world.parts.submitter().submit(line.draft).task.id


def by_the_intake(world: World, option: str) -> str:
    given = {"queue": QUEUE, "handler_ref": "charge", "payload_text": "x"}
    given[FIELD_OF_OPTION[option]] = as_json(option)
    host = replace(Stage().host, parts=world.parts)
    task_id: str = IntakeFunction(host).take({"submit": given})["id"]
    return task_id


def by_an_outbox(world: World, option: str) -> str:
    class Marks:
        exceptions = None

        def update_item(self, **_request: Any) -> None:
            """The record has its mark."""

    task = NewTask(QUEUE, "charge", "x", **{"key": "order-7", option: EXAMPLES[option]})
    if option == "id":
        task = NewTask(QUEUE, "charge", "x", id=ID)
    outbox = Outbox(
        client=Marks(),
        table="orders",
        index="outbox",
        primary_key=["id"],
        mark="outbox",
        order="placed_at",
        task_of=lambda _record: task,
    )
    return outbox.submit(world.rdq, {"id": {"S": "7"}, "placed_at": {"S": "x"}}).id


DOORS: Final[Mapping[str, Callable[[World, str], str]]] = {
    "Rdq.submit": by_call,
    "a NewTask": by_a_value,
    "a mapping": by_a_mapping,
    "a task object of a file": by_a_line,
    "the command line for a file": by_the_template_of_a_file,
    "the intake function": by_the_intake,
    "an outbox": by_an_outbox,
}


def stored(task: Task, option: str, world: World) -> Any:
    """What the task has of an option."""
    if option == "key":
        return task.headers["rdq.key"] if task.id == derive_id(QUEUE, "order-7") else None
    if option == "headers":
        return {name: value for name, value in task.headers.items() if name != "rdq.key"}
    if option == "run_at":
        return task.next_attempt_at
    if option == "delay":
        return f"{(task.next_attempt_at - world.clock.now()).seconds // 3600}h"  # type: ignore[operator]
    return getattr(task, "payload_content_type" if option == "content_type" else option)


@pytest.mark.parametrize("option", sorted(SUBMIT_OPTIONS))
@pytest.mark.parametrize("door", DOORS)
def test_every_door_stores_every_option(door: str, option: str) -> None:
    world = World()
    task = world.task(DOORS[door](world, option))
    assert stored(task, option, world) == EXAMPLES[option]


@pytest.mark.parametrize("option", sorted(SUBMIT_OPTIONS - OF_THE_DEFINITION.keys()))
def test_a_typed_task_stores_every_option_that_its_definition_does_not_decide(option: str) -> None:
    world = World()
    world.registry.add(send_email)
    given: Any = {option: EXAMPLES[option]}
    task = world.task(send_email.submit(world.rdq, Mail(to="ada"), **given).id)
    assert stored(task, option, world) == EXAMPLES[option]


def test_the_lists_that_have_to_be_written_out_are_the_one_list() -> None:
    assert set(EXAMPLES) == SUBMIT_OPTIONS
    assert {field.name for field in fields(NewTask)} == SUBMIT_OPTIONS | {
        "queue",
        "handler_ref",
        "payload",
    }
    assert TypedSubmitOptions.__optional_keys__ == SUBMIT_OPTIONS - OF_THE_DEFINITION.keys()
    assert set(FIELD_OF_OPTION) == SUBMIT_OPTIONS


def test_the_command_line_has_an_option_for_each() -> None:
    spelt_otherwise = {"id": "task_id", "headers": "header"}
    wanted = {spelt_otherwise.get(option, option) for option in SUBMIT_OPTIONS}
    assert wanted <= inspect.signature(command.submit).parameters.keys()


@pytest.mark.parametrize("call", ["submit", "prepare"])
def test_an_unknown_option_is_a_type_error_that_names_the_nearest(call: str) -> None:
    unknown: Any = {"dealy": "1h"}
    with pytest.raises(TypeError, match=r"'dealy'; did you mean delay\?"):
        getattr(World().rdq, call)(QUEUE, "charge", "x", **unknown)


@pytest.mark.parametrize("option", ["colour", *OF_THE_DEFINITION])
def test_a_typed_task_has_no_other_options(option: str) -> None:
    unknown: Any = {option: "red"}
    with pytest.raises(TypeError, match=option):
        send_email.submit(World().rdq, Mail(to="ada"), **unknown)
    with pytest.raises(TypeError, match=option):
        send_email.new(Mail(to="ada"), **unknown)


def test_a_mapping_with_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    given = {"queue": QUEUE, "handler_ref": "charge", "payload": 1, "dealy": "1h"}
    with pytest.raises(InputInvalid, match="dealy") as refusal:
        new_task_of(given)
    assert refusal.value.hint == "did you mean delay?"


def test_users_of_an_rdq_see_what_is_for_them() -> None:
    assert {name for name in dir(Rdq) if not name.startswith("_")} == {
        "cancel",
        "forget",
        "from_env",
        "get",
        "guard",
        "on_error",
        "prepare",
        "result",
        "submit",
        "submit_many",
    }
