"""What rdq adds to a submitter's cold start: time and memory compared with bare boto3.

    python benchmarks/coldstart.py [ROUNDS]

Three programs take turns, each in a fresh interpreter, from its first import to the answer of its
first write, on a moto server in this process: boto3 alone, an rdq submit whose id is derived from a
key, and one whose id is generated. Medians are compared, because single runs on a busy machine say
little. Goals: 1.15 with a key, 1.3 with a generated id. Needs Linux.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import boto3

from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.testing.moto import AtomicMotoServer

TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
GOALS: Final = {"key": 1.15, "minted": 1.3}

FRAME: Final = r"""
import time
start = time.perf_counter()
{program}
elapsed = time.perf_counter() - start
import re
# Not getrusage: its maximum starts at the parent process's.
print(elapsed, re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
"""
BARE: Final = """
import boto3
client = boto3.client("dynamodb")
client.query(
    TableName="rdq-control", ConsistentRead=True, KeyConditionExpression="#k = :k",
    ExpressionAttributeNames={"#k": "pk"}, ExpressionAttributeValues={":k": {"S": "queues"}},
)
client.put_item(
    TableName="rdq-tasks", Item={"task_id": {"S": "bare"}, "kind": {"S": "state"}},
    ConditionExpression="attribute_not_exists(task_id) OR kind = :k",
    ExpressionAttributeValues={":k": {"S": "state"}},
)
"""
SUBMIT: Final = """
from rdq_core import Rdq
Rdq.from_env().submit("billing", "charge", {{"amount": 5}}{key})
"""
PROGRAMS: Final = {
    "boto3": BARE,
    "key": SUBMIT.format(key=', key="order-7"'),
    "minted": SUBMIT.format(key=""),
}


class Start(NamedTuple):
    """One cold start."""

    seconds: float
    kilobytes: float


@contextmanager
def an_engine() -> Iterator[dict[str, str]]:
    """The environment for a program, with a moto server that has the queue `billing`."""
    keys = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    os.environ |= keys
    with AtomicMotoServer() as server:
        client = boto3.client("dynamodb", endpoint_url=server.endpoint_url)
        create_tables(client, TABLES)
        connect(client, TABLES).queues.put_declared("billing", {}, {}, expected_revision=0)
        yield {**os.environ, **TABLES.as_env(), "AWS_ENDPOINT_URL": server.endpoint_url}


def measure(program: str, environment: dict[str, str]) -> Start:
    """Start a program once, in a fresh interpreter."""
    answer = subprocess.run(
        [sys.executable, "-c", FRAME.format(program=program)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, kilobytes = map(float, answer.stdout.split())
    return Start(seconds, kilobytes)


def medians(rounds: int) -> dict[str, Start]:
    """The median start of each program. They take turns, so that other load hits all of them."""
    starts: dict[str, list[Start]] = {name: [] for name in PROGRAMS}
    with an_engine() as environment:
        for program in PROGRAMS.values():  # once unmeasured, so that all files are cached
            measure(program, environment)
        for _ in range(rounds):
            for name, program in PROGRAMS.items():
                starts[name].append(measure(program, environment))
    return {
        name: Start(*(statistics.median(column) for column in zip(*measured, strict=True)))
        for name, measured in starts.items()
    }


def main() -> int:
    """Print the medians and their ratios; 1 when a goal is missed."""
    results = medians(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    bare = results["boto3"]
    print(f"{'':8} {'ms':>7} {'ratio':>6} {'MiB':>7} {'ratio':>6}  goal")
    for name, start in results.items():
        goal = GOALS.get(name)
        print(
            f"{name:8} {start.seconds * 1000:7.0f} {start.seconds / bare.seconds:6.2f} "
            f"{start.kilobytes / 1024:7.1f} {start.kilobytes / bare.kilobytes:6.2f}  {goal or ''}"
        )
    return int(any(results[name].seconds > goal * bare.seconds for name, goal in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())
