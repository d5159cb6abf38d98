from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rdq_core import Status
from rdq_core.errors import InputInvalid, QueueNotFound, TaskConflict, TaskNotFound
from tests.engine.world import QUEUE, World


@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        ("grüße", "grüße".encode(), "text/plain; charset=utf-8"),
        ({"a": 1, "b": [True, None]}, b'{"a":1,"b":[true,null]}', "application/json"),
        ([1.5], b"[1.5]", "application/json"),
        (None, b"null", "application/json"),
        (0, b"0", "application/json"),
        ({"price": Decimal("1.10")}, b'{"price":"1.10"}', "application/json"),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC)},
            b'{"at":"2026-01-02T00:00:00Z"}',
            "application/json",
        ),
    ],
)
def test_every_form_of_payload_has_its_bytes_and_content_type(
    payload: object, stored: bytes, content_type: str
) -> None:
    world = World()
    task = world.task(world.submit(payload))
    assert (task.payload, task.payload_content_type) == (stored, content_type)


@pytest.mark.parametrize(
    "payload", [{1, 2}, object(), {"x": {3}}, {"deep": [float("nan")]}, "\ud800"]
)
def test_a_payload_that_is_no_data_is_refused(payload: object) -> None:
    world = World()
    with pytest.raises(InputInvalid, match=r"^payload: "):
        world.submit(payload)
    assert world.store.counts(QUEUE).pending == 0


def test_nan_is_refused_with_its_path() -> None:
    with pytest.raises(InputInvalid, match=r"\$\.deep\[1\]"):
        World().submit({"deep": [0, float("inf")]})


class Reading(BaseModel):
    at: str = Field(default="noon", alias="When")
    values: dict[str, Any] = {}
    hidden: object = Field(default=float("nan"), exclude=True)
    unknown: Any = None


@dataclass
class Readings:
    first: Reading
    others: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (Reading(values={"a": [float("nan")]}), "$.values.a[0]"),
        ({"x": Reading(unknown=float("inf"))}, "$.unknown"),
        (Readings(Reading(unknown=float("nan"))), "$.first.unknown"),
        (Readings(Reading(), (None, float("nan"))), "$.others[1]"),
    ],
)
def test_nan_is_refused_where_pydantic_would_write_null(payload: object, path: str) -> None:
    with pytest.raises(InputInvalid) as refusal:
        World().submit(payload)
    assert refusal.value.problem == f"has NaN or an infinity at {path}"


def test_what_a_model_keeps_to_itself_may_be_nan() -> None:
    world = World()
    assert (
        world.task(world.submit(Reading())).payload == b'{"When":"noon","values":{},"unknown":null}'
    )


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"headers": {"rdq.x": "1"}}, "headers.rdq.x"),
        ({"headers": {"n": 5}}, "headers.n"),
        ({"run_at": datetime(2026, 7, 20, 12)}, "run_at"),  # noqa: DTZ001 - naive on purpose
        ({"run_at": datetime(2036, 7, 20, tzinfo=UTC)}, "run_at"),
        ({"delay": "60"}, "delay"),
        ({"delay": timedelta.max}, "delay"),
        ({"delay": "1s", "run_at": datetime(2026, 7, 21, tzinfo=UTC)}, "delay"),
        ({"id": "x"}, "id"),
        ({"id": "0" * 26, "key": "k"}, "key"),
        ({"key": ""}, "key"),
        ({"concurrency_key": "  "}, "concurrency_key"),
        ({"target": "x" * 257}, "target"),
        ({"content_type": ""}, "content_type"),
        ({"handler_version": ""}, "handler_version"),
        ({"ref": "Café"}, "handler_ref"),
        ({"ref": "x" * 241}, "handler_ref"),
        ({"ref": "charge\n"}, "handler_ref"),
        ({"ref": ""}, "handler_ref"),
        ({"ref": "rdq.mine"}, "handler_ref"),
        ({"queue": "Café"}, "queue"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_stored(options: dict[str, object], field: str) -> None:
    world = World()
    with pytest.raises(InputInvalid) as refusal:
        world.submit(**options)  # type: ignore[arg-type]
    assert refusal.value.field == field
    assert world.store.counts(QUEUE).pending == 0


def test_a_payload_over_the_queues_limit_is_refused_with_size_and_limit() -> None:
    world = World(limits={"max_payload_size": "1KiB"})
    with pytest.raises(InputInvalid, match=r"1025 bytes.*1024"):
        world.submit(b"x" * 1025)


def test_an_unknown_queue_is_refused_and_a_swap_is_guessed() -> None:
    world = World()
    with pytest.raises(QueueNotFound) as refusal:
        world.submit(queue="charge", ref=QUEUE)
    assert "swapped" in str(refusal.value.hint)


def test_a_business_key_submits_once_and_finds_its_task_again() -> None:
    world = World()
    first = world.rdq.submit(QUEUE, "charge", "order", key="order 7")
    again = world.rdq.submit(QUEUE, "charge", "another order", key="order 7")
    assert (first.created, again.created, first.id) == (True, False, again.id)
    found = world.rdq.get(queue=QUEUE, key="order 7")
    assert (found.payload, found.headers["rdq.key"]) == (b"order", "order 7")


def test_an_id_of_another_queue_is_a_conflict() -> None:
    world = World()
    world.configure("mail")
    task_id = world.submit()
    with pytest.raises(TaskConflict, match=QUEUE):
        world.submit(queue="mail", id=task_id)


def test_a_repeated_submit_never_resets_a_task_that_has_moved_on() -> None:
    world = World()
    world.handler(lambda _order: None)
    task_id = world.submit()
    world.sweep()
    assert not world.rdq.submit(QUEUE, "charge", "order", id=task_id).created
    assert world.task(task_id).status is Status.SUCCEEDED


def test_a_delay_counts_from_now_and_the_past_means_at_once() -> None:
    world = World()
    later = world.task(world.submit(delay="90s"))
    now = world.task(world.submit(run_at=world.clock.now() - timedelta(days=3)))
    assert later.next_attempt_at == world.clock.now() + timedelta(seconds=90)
    assert now.next_attempt_at == world.clock.now()


def test_a_lower_case_id_is_the_same_id() -> None:
    world = World()
    task_id = world.submit(id="01arz3ndektsv4rrffq69g5fav")
    assert task_id == "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_an_absent_task_is_not_found() -> None:
    with pytest.raises(TaskNotFound):
        World().rdq.get("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_an_expired_task_is_absent_and_its_id_is_free_again() -> None:
    world = World(limits={"task_ttl": "1h"})
    world.handler(lambda _order: None)
    task_id = world.submit()
    world.sweep()
    old_fence = world.attempts(task_id)[0].fencing_token
    world.clock.advance("1h")
    with pytest.raises(TaskNotFound):
        world.task(task_id)
    assert world.rdq.submit(QUEUE, "charge", "order", id=task_id).created
    world.sweep()
    assert [attempt.attempt_no for attempt in world.attempts(task_id)] == [1]
    assert (world.attempts(task_id)[0].fencing_token or 0) > (old_fence or 0)


def test_a_queue_that_is_being_deleted_takes_no_new_tasks_and_says_how_to_keep_it() -> None:
    world = World()
    world.queues.begin_delete(QUEUE, now=world.clock.now())

    with pytest.raises(QueueNotFound, match="is being deleted") as refused:
        world.submit()

    assert "rdq queue apply" in str(refused.value.hint)
    assert world.store.counts(QUEUE).pending == 0


def test_a_deleted_queue_is_not_found_and_says_since_when() -> None:
    world = World()
    seen = world.queues.begin_delete(QUEUE, now=world.clock.now())
    world.queues.end_delete(seen, now=world.clock.now())

    with pytest.raises(QueueNotFound, match="was deleted at 2026-07-20T12:00"):
        world.submit()
