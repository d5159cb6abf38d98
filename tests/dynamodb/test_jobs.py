"""Jobs on DynamoDB: requests that get lost, items that nobody can read, and what is kept for how
long.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rdq_core.domain.job import Job, JobState
from rdq_core.engine.ports import JobStore
from rdq_core.errors import CorruptItem
from rdq_core.testing.contract.jobs import FIRST, SECOND, a_job, over
from rdq_core.testing.faults import Fault, FaultScript, LosesAnswer, LosesRequest
from tests.support.engines import Engine
from tests.support.stores import TABLES, dynamo_on

Deed = Callable[[JobStore], object]
ADVANCED = a_job().changed(done=1)
ENDED = over(a_job())

DEEDS: dict[str, tuple[list[Deed], Deed, Job]] = {
    "create": ([], lambda jobs: jobs.create(a_job()), a_job()),
    "replace": (
        [lambda jobs: jobs.create(a_job())],
        lambda jobs: jobs.replace(a_job(), ADVANCED),
        ADVANCED,
    ),
    "file": (
        [lambda jobs: jobs.create(a_job()), lambda jobs: jobs.replace(a_job(), ENDED)],
        lambda jobs: jobs.file(ENDED),
        ENDED,
    ),
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize(
    "fault", [LosesRequest(), LosesAnswer()], ids=["request lost", "answer lost"]
)
def test_one_hiccup_is_not_noticed(moto: Engine, deed: str, fault: Fault) -> None:
    before, do, after = DEEDS[deed]
    client, dynamo = moto.dynamodb, dynamo_on(moto)
    jobs, others = dynamo.jobs(client), dynamo.jobs()
    for step in before:
        step(others)
    with FaultScript(client) as faults:
        faults.add(fault, nth=1)
        assert do(jobs) is not False
    assert others.get(FIRST) == after


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"id": 5}'])
def test_a_job_that_cannot_be_read_is_left_as_it_is_and_hides_no_other(
    moto: Engine, text: str
) -> None:
    jobs = dynamo_on(moto).jobs()
    jobs.create(a_job(SECOND))
    item = {
        "pk": {"S": "jobs#open"},
        "sk": {"S": FIRST},
        "v": {"N": "1"},
        "revision": {"N": "1"},
        "job": {"S": text},
    }
    moto.dynamodb.put_item(TableName=TABLES.control, Item=item)

    assert list(jobs.open_jobs()) == [a_job(SECOND)]
    with pytest.raises(CorruptItem, match=FIRST):
        jobs.get(FIRST)


def test_a_job_of_a_newer_rdq_is_left_to_it(moto: Engine) -> None:
    jobs = dynamo_on(moto).jobs()
    jobs.create(a_job())
    key = {"pk": {"S": "jobs#open"}, "sk": {"S": FIRST}}
    moto.dynamodb.update_item(
        TableName=TABLES.control,
        Key=key,
        UpdateExpression="SET v = :v",
        ExpressionAttributeValues={":v": {"N": "2"}},
    )
    with pytest.raises(CorruptItem, match="newer rdq"):
        jobs.get(FIRST)


def test_a_job_that_has_ended_is_kept_for_a_season_and_an_open_one_for_good(moto: Engine) -> None:
    dynamo = dynamo_on(moto)
    jobs = dynamo.jobs()
    jobs.create(a_job())
    jobs.create(a_job(SECOND))
    jobs.replace(a_job(), ENDED)
    jobs.file(ENDED)
    items = {
        item["sk"]["S"]: item for item in moto.dynamodb.scan(TableName=TABLES.control)["Items"]
    }
    assert ENDED.ended_at is not None
    ends_at = int((ENDED.ended_at + timedelta(days=90)).timestamp())
    assert items[FIRST]["expires_at"] == {"N": str(ends_at)}
    assert "expires_at" not in items[SECOND]
    assert ENDED.state is JobState.DONE
