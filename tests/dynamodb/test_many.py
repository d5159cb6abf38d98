"""Submitting many to DynamoDB: few requests where the engine can, and the same answers whatever
goes wrong.
"""

from collections.abc import Sequence

import pytest

from benchmarks.capacity import Meter
from rdq_core.domain.ids import encode_id
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Submission
from rdq_core.errors import InputInvalid, RdqError, StoreFailed, Unavailable
from rdq_core.stores.dynamodb.sender import MAX_SENDS
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.billing import Bill
from tests.dynamodb.verbs import noise
from tests.dynamodb.world import QUEUE, SHARDS, TABLES, World, a_task
from tests.support.engines import Engine


def tasks(number: int, **fields: object) -> list[Task]:
    return [a_task(encode_id(1000 + place), **fields) for place in range(number)]


def submit_many(world: World, given: Sequence[Task]) -> list[Submission | RdqError]:
    return world.store.submit_many(given, shards_of=lambda _queue: SHARDS)


def are_created(answers: Sequence[Submission | RdqError]) -> list[bool]:
    return [answer.created for answer in answers if isinstance(answer, Submission)]


@pytest.fixture
def quick(ministack: Engine) -> World:
    return World(ministack)


# -- few requests ----------------------------------------------------------------------------------


@pytest.mark.ministack
def test_a_thousand_tasks_take_forty_requests(quick: World) -> None:
    given, bill = tasks(1000, payload=b"x" * 200), Bill(quick.client)
    assert are_created(submit_many(quick, given)) == [True] * 1000
    assert bill.requests == ["BatchExecuteStatement"] * 40
    assert quick.store.counts(QUEUE).pending == 1000
    assert are_created(submit_many(quick, given)) == [False] * 1000


@pytest.mark.ministack
def test_an_inserted_row_costs_two_units_and_one_that_is_there_what_a_failed_condition_does(
    quick: World,
) -> None:
    # ministack bills an insert without its index entry, so the meter has to tell.
    with Meter(quick.client) as meter:
        submit_many(quick, tasks(20, payload=b"x" * 200))
        assert (meter.operations, meter.write_units) == (["BatchExecuteStatement"], 40)
        meter.clear()
        assert are_created(submit_many(quick, tasks(21, payload=b"x" * 200))) == [False] * 20 + [
            True
        ]
        assert (meter.operations, meter.write_units) == (
            ["BatchExecuteStatement"] + ["PutItem"] * 20,
            20 + 2 + 20,
        )


@pytest.mark.ministack
def test_bodies_records_and_references_go_in_batches_before_their_rows(quick: World) -> None:
    with FaultScript(quick.client) as requests:
        submit_many(quick, tasks(25, payload=noise(3000)))
    assert [request.operation for request in requests.requests] == [
        "BatchWriteItem",
        "BatchExecuteStatement",
    ]


def test_an_engine_that_cannot_insert_is_asked_once(world: World) -> None:
    with FaultScript(world.client) as requests:
        assert are_created(submit_many(world, tasks(60))) == [True] * 60
    assert (requests.count("BatchExecuteStatement"), requests.count("PutItem")) == (1, 60)


@pytest.mark.ministack
def test_a_role_that_may_not_insert_submits_all_the_same(quick: World) -> None:
    with FaultScript(quick.client) as faults:
        faults.reject("AccessDeniedException", "BatchExecuteStatement", times=None)
        assert are_created(submit_many(quick, tasks(60))) == [True] * 60
    assert (faults.count("BatchExecuteStatement"), faults.count("PutItem")) == (1, 60)


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.ministack
@pytest.mark.parametrize(
    "code", ["ThrottlingException", "TransactionConflictException", "InternalServerError"]
)
def test_one_refused_request_sends_its_own_rows_by_themselves_and_no_others(
    quick: World, code: str
) -> None:
    with FaultScript(quick.client) as faults:
        faults.reject(code, "BatchExecuteStatement")
        assert are_created(submit_many(quick, tasks(100))) == [True] * 100
    assert (faults.count("BatchExecuteStatement"), faults.count("PutItem")) == (4, 25)


@pytest.mark.ministack
def test_rows_whose_insert_was_carried_out_unheard_are_known_as_ours(quick: World) -> None:
    given = tasks(25, payload=noise(2000))
    with FaultScript(quick.client) as faults:
        faults.lose_answer("BatchExecuteStatement")
        faults.interleave(lambda: quick.claim(given[3].id), "PutItem")
        answers = submit_many(quick, given)
    assert are_created(answers) == [True] * 25
    assert isinstance(answers[3], Submission)
    assert answers[3].task.status is Status.IN_FLIGHT
    assert quick.got(given[3].id).payload == noise(2000)


@pytest.mark.ministack
def test_a_row_that_somebody_else_has_put_meanwhile_is_theirs_and_nothing_of_ours_stays(
    quick: World,
) -> None:
    given = tasks(25, payload=noise(2000))
    with FaultScript(quick.client) as faults:
        faults.interleave(
            lambda: quick.submit(given[3].id, payload=b"theirs"), "BatchExecuteStatement"
        )
        answers = submit_many(quick, given)
    assert are_created(answers) == [place != 3 for place in range(25)]
    assert quick.got(given[3].id).payload == b"theirs"
    assert quick.kinds(given[3].id) == ["T"]


def test_bodies_that_were_left_unprocessed_are_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, batches = tasks(10, payload=noise(2000)), list[int]()
    whole = world.client.batch_write_item

    # boto3's name
    def takes_four_at_a_time(RequestItems: dict[str, list[object]]) -> dict[str, object]:  # noqa: N803
        ((table, requests),) = RequestItems.items()
        batches.append(len(requests))
        whole(RequestItems={table: requests[:4]})
        return {"UnprocessedItems": {table: requests[4:]}} if requests[4:] else {}

    monkeypatch.setattr(world.client, "batch_write_item", takes_four_at_a_time)
    assert are_created(submit_many(world, given)) == [True] * 10
    assert batches == [10, 6, 2]
    assert {world.got(task.id).payload for task in given} == {noise(2000)}


@pytest.mark.parametrize("answer_lost", [False, True], ids=["request lost", "answer lost"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_one_hiccup_at_any_request_is_not_noticed(
    anywhere: World, nth: int, answer_lost: bool
) -> None:
    given = tasks(6, payload=noise(2000), target="order:1")
    with FaultScript(anywhere.client) as faults:
        if answer_lost:
            faults.lose_answer(nth=nth)
        else:
            faults.lose_request(nth=nth)
        answers = submit_many(anywhere, given)
    assert are_created(answers) == [True] * 6
    assert [len(anywhere.kinds(task.id)) for task in given] == [2] * 6


def test_after_storage_has_failed_the_rest_is_not_tried_and_all_of_it_can_be_repeated(
    world: World,
) -> None:
    given = tasks(500)
    with FaultScript(world.client) as faults:
        faults.lose_request("PutItem", nth=30, times=None)
        answers = submit_many(world, given)
    assert faults.count("PutItem") < 30 + MAX_SENDS * 8
    failed = [answer for answer in answers if isinstance(answer, StoreFailed)]
    assert len(failed) + len(are_created(answers)) == 500
    assert [answer.may_have_happened for answer in failed] == [False] * len(failed)
    assert sum(are_created(submit_many(world, given))) == len(failed)


def test_a_missing_table_is_the_answer_and_no_crash(world: World) -> None:
    world.client.delete_table(TableName=TABLES.tasks)
    answers = submit_many(world, tasks(30))
    assert isinstance(answers[0], Unavailable)
    assert are_created(answers) == []


def test_a_payload_that_needs_a_bucket_is_refused_and_keeps_no_other_out(world: World) -> None:
    given = tasks(3)
    given[1] = a_task(given[1].id, payload=noise(300 * 1024))
    answers = submit_many(world, given)
    assert [type(answer) for answer in answers] == [Submission, InputInvalid, Submission]
    assert world.kinds(given[1].id) == []
