import threading
from datetime import timedelta

import pytest

from rdq_core.config.settings import RateLimit
from rdq_core.errors import CorruptItem
from rdq_core.runtime.system import SystemIds, SystemSleeper
from rdq_core.stores.dynamodb.coordination import DynamoRateLimiter
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.testing.clock import NOON, NoJitter
from rdq_core.testing.faults import FaultScript
from tests.support.engines import Engine

TABLES = Tables("tasks", "dlq", "control", "audit")
TEN = RateLimit(count=10, period=timedelta(seconds=1), burst=10)


def a_limiter(client: object) -> DynamoRateLimiter:
    return DynamoRateLimiter(
        client, TABLES, ids=SystemIds(), jitter=NoJitter(), sleeper=SystemSleeper()
    )


@pytest.fixture
def engine_with_tables(engine: Engine) -> Engine:
    create_tables(engine.dynamodb, TABLES)
    return engine


def test_sweepers_on_several_threads_get_no_more_than_the_burst(engine_with_tables: Engine) -> None:
    limiters = [a_limiter(engine_with_tables.dynamodb) for _ in range(4)]
    granted: list[int] = []
    threads = [
        threading.Thread(
            target=lambda limiter=limiter: granted.append(limiter.take("billing", 5, TEN, now=NOON))
        )
        for limiter in limiters
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 10


def test_a_bucket_fills_at_its_rate_for_all_of_them(engine_with_tables: Engine) -> None:
    one, other = (a_limiter(engine_with_tables.dynamodb) for _ in range(2))
    assert one.take("billing", 50, TEN, now=NOON) == 10
    assert other.take("billing", 50, TEN, now=NOON) == 0
    assert other.take("billing", 50, TEN, now=NOON + timedelta(milliseconds=500)) == 5
    assert one.take("billing", 50, TEN, now=NOON + timedelta(milliseconds=600)) == 1


def test_a_sweeper_who_has_seen_nothing_does_not_begin_the_bucket_anew(
    engine_with_tables: Engine,
) -> None:
    one, other = (a_limiter(engine_with_tables.dynamodb) for _ in range(2))
    assert [one.take("billing", 7, TEN, now=NOON), other.take("billing", 7, TEN, now=NOON)] == [
        7,
        3,
    ]


def test_an_empty_bucket_is_asked_without_a_write(engine_with_tables: Engine) -> None:
    client = engine_with_tables.dynamodb
    limiter = a_limiter(client)
    limiter.take("billing", 10, TEN, now=NOON)
    with FaultScript(client) as faults:
        assert limiter.take("billing", 1, TEN, now=NOON) == 0
        assert faults.count() == 0


def test_an_answer_that_was_lost_hands_nothing_out_twice(engine_with_tables: Engine) -> None:
    client = engine_with_tables.dynamodb
    limiter = a_limiter(client)
    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem")
        assert limiter.take("billing", 4, TEN, now=NOON) == 4
    assert a_limiter(client).take("billing", 50, TEN, now=NOON) == 6


def test_queues_have_buckets_of_their_own(engine_with_tables: Engine) -> None:
    limiter = a_limiter(engine_with_tables.dynamodb)
    assert [limiter.take(queue, 10, TEN, now=NOON) for queue in ("billing", "mail")] == [10, 10]


def test_a_bucket_that_was_edited_into_no_whole_number_is_told(engine_with_tables: Engine) -> None:
    client = engine_with_tables.dynamodb
    a_limiter(client).take("billing", 1, TEN, now=NOON)
    (item,) = client.scan(TableName=TABLES.control)["Items"]
    client.put_item(TableName=TABLES.control, Item={**item, "handed_out_until": {"N": "1.5"}})
    with pytest.raises(CorruptItem, match="handed_out_until"):
        a_limiter(client).take("billing", 1, TEN, now=NOON)
