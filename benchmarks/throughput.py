"""Tasks a second and client CPU time per task, compared with the obvious design.

    python -m benchmarks.throughput [TASKS]

Both run on ministack on this machine, one after the other, with the same numbers of threads and
processes. The obvious design is what most people would write, with boto3's Table resource.
ministack is one Python process and the bottleneck of every rate here: the rates compare the designs
and say nothing about DynamoDB, unlike the CPU times.
"""

import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

import boto3
from boto3.dynamodb.conditions import Attr as Attribute

from benchmarks.cost import show
from benchmarks.designs import HANDLER, HEADERS, KEPT, OBVIOUS_TABLE, QUEUE
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Status, Task
from rdq_core.domain.times import to_millis
from rdq_core.engine.ports import Candidate
from rdq_core.runtime.system import SystemClock, SystemIds, SystemJitter, SystemSleeper
from rdq_core.runtime.wiring import dynamodb_client
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from tests.support.ministack import Ministack

TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
REGION: Final = "us-east-1"
SHARDS: Final = 4
TASKS: Final = 160
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
}
"""Credentials that only ministack accepts, for this process and its children."""
PAYLOAD: Final = b'{"order":17,"amount":"12.50"}' * 10
SHAPES: Final = ((1, 1), (1, 4), (1, 16), (2, 1), (4, 1))
"""Processes, and threads in each."""
STEPS: Final = ("submit", "claim", "complete")


class Client(Protocol):
    """The client of one design in one process. Safe between threads."""

    def submit(self, task_id: str) -> None: ...
    def claim(self, task_id: str) -> None: ...
    def complete(self, task_id: str) -> None: ...


class RdqClient:
    """rdq's store, on rdq's own DynamoDB client."""

    def __init__(self, url: str) -> None:
        self._clock = SystemClock()
        self._ids = SystemIds()
        self._store = DynamoTaskStore(
            dynamodb_client({"AWS_ENDPOINT_URL": url}),
            TABLES,
            clock=self._clock,
            ids=self._ids,
            jitter=SystemJitter(),
            sleeper=SystemSleeper(),
            shards_ever=lambda _: SHARDS,
        )
        self._seen: dict[str, Candidate] = {}
        self._held: dict[str, Claim] = {}

    def submit(self, task_id: str) -> None:
        now = self._clock.now()
        task = Task(
            id=task_id,
            queue=QUEUE,
            handler_ref=HANDLER,
            payload=PAYLOAD,
            headers=HEADERS,
            created_at=now,
        )
        stored = self._store.submit(task, shards=SHARDS).task
        # As a page of the index would show it; one page serves many claims.
        self._seen[task_id] = Candidate(
            task_id=task_id,
            queue=QUEUE,
            due_at=now,
            status=Status.PENDING,
            fencing_token=to_millis(stored.created_at),
            handler_ref=HANDLER,
        )

    def claim(self, task_id: str) -> None:
        now = self._clock.now()
        grant = Grant(token=self._ids.token(), now=now, lease_expires_at=now + KEPT)
        claim = self._store.claim(self._seen[task_id], grant)
        if claim is None:
            raise RuntimeError(f"task {task_id} was not as it was submitted")
        self._store.load(claim)
        self._held[task_id] = claim

    def complete(self, task_id: str) -> None:
        claim, now = self._held[task_id], self._clock.now()
        attempt = Attempt(
            attempt_no=claim.attempt_no,
            started_at=claim.claimed_at,
            finished_at=now,
            outcome=Outcome.SUCCESS,
            worker="benchmark:1",
            fencing_token=claim.fencing_token,
        )
        self._store.complete(claim, attempt, Result(content=b"{}"), now=now, expires_at=now + KEPT)


class ObviousClient:
    """The obvious design, with boto3's Table resource."""

    def __init__(self, url: str) -> None:
        self._table: Any = boto3.resource("dynamodb", endpoint_url=url, region_name=REGION).Table(
            "obvious"
        )

    def submit(self, task_id: str) -> None:
        item = {
            "task_id": task_id,
            "queue": QUEUE,
            "handler_ref": HANDLER,
            "status": "PENDING",
            "due_at": time.time_ns() // 1_000_000,
            "created_at": time.time_ns() // 1_000_000,
            "payload": PAYLOAD,
            "headers": dict(HEADERS),
            "attempts": [],
        }
        self._table.put_item(Item=item, ConditionExpression=Attribute("task_id").not_exists())

    def claim(self, task_id: str) -> None:
        self._change(task_id, "PENDING", "IN_FLIGHT", "claim_token", "t" * 22)

    def complete(self, task_id: str) -> None:
        self._change(task_id, "IN_FLIGHT", "SUCCEEDED", "result", b"{}")

    def _change(self, task_id: str, seen: str, status: str, name: str, value: object) -> None:
        self._table.update_item(
            Key={"task_id": task_id},
            UpdateExpression="SET #status = :status, due_at = :due, #name = :value",
            ConditionExpression=Attribute("status").eq(seen),
            ExpressionAttributeNames={"#status": "status", "#name": name},
            ExpressionAttributeValues={
                ":status": status,
                ":due": time.time_ns() // 1_000_000,
                ":value": value,
            },
            ReturnValues="ALL_NEW",
        )


CLIENTS: Final[dict[str, Callable[[str], Client]]] = {"rdq": RdqClient, "obvious": ObviousClient}


@dataclass(frozen=True, slots=True)
class Share:
    """The results of one process: tasks a second of each step, and CPU milliseconds per task."""

    rates: tuple[float, ...]
    cpu_millis: float


def share(design: str, url: str, first: int, tasks: int, threads: int) -> Share:
    """Do every step of `tasks` tasks in this process."""
    client = CLIENTS[design](url)
    ids = [encode_id(number) for number in range(first, first + tasks)]
    warm = encode_id(first + tasks)
    for step in STEPS:
        getattr(client, step)(warm)
    rates, started = [], time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        for step in STEPS:
            begun = time.perf_counter()
            list(pool.map(getattr(client, step), ids))
            rates.append(tasks / (time.perf_counter() - begun))
    return Share(tuple(rates), 1000 * (time.process_time() - started) / tasks)


def run(
    design: str, url: str, processes: int, threads: int, tasks: int, numbers: Iterable[int]
) -> Share:
    """Run the processes side by side: the sum of their rates, the mean of their CPU times."""
    each = tasks // processes
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [
            pool.submit(share, design, url, next(iter(numbers)), each, threads)
            for _ in range(processes)
        ]
        shares = [future.result() for future in waiting]
    rates = tuple(sum(column) for column in zip(*(each.rates for each in shares), strict=True))
    return Share(rates, sum(each.cpu_millis for each in shares) / processes)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    tasks = int(arguments[0]) if arguments else TASKS
    os.environ.update(CREDENTIALS)
    numbers = itertools.count(1, 100_000)
    rows = []
    for processes, threads in SHAPES:
        for design in CLIENTS:
            with Ministack() as server:  # a new one, because it gets slower as its tables grow
                prepare(server.endpoint_url)
                done = run(design, server.endpoint_url, processes, threads, tasks, numbers)
            rates = (f"{rate:,.0f}" for rate in done.rates)
            rows.append((design, processes, threads, *rates, f"{done.cpu_millis:.2f}"))
    print(f"\ntasks a second at each step, and client CPU time for all three ({tasks} tasks)\n")
    show(("design", "processes", "threads", *STEPS, "CPU ms a task"), rows)
    return 0


def prepare(url: str) -> None:
    """Empty tables of both designs."""
    client = dynamodb_client({"AWS_ENDPOINT_URL": url})
    create_tables(client, TABLES)
    client.create_table(**OBVIOUS_TABLE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
