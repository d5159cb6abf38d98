"""What a cold start pays for: a submitter loads what it needs to submit, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import create_tables
from rdq_core.testing.moto import AtomicMotoServer
from tests.support.engines import Engine
from tests.support.stores import TABLES

ROOT = Path(__file__).parents[2]
HEAVY = {
    "pydantic",
    "pydantic_core",
    "aws_lambda_powertools",
    "moto",
    "typer",
    "click",
    "rich",
    "yaml",
    "boto3",
    "ulid",
}

PROGRAM = """
import json, sys
from rdq_core import Rdq
rdq = Rdq.from_env()
loaded = [set(sys.modules)]
rdq.submit("billing", "charge", {{"amount": 5}}, key="order-7")
loaded.append(set(sys.modules))
rdq.submit("billing", "charge", {{"amount": 5}})
loaded.append(set(sys.modules))
heavy = set({heavy})
packages = [{{name.partition(".")[0] for name in names}} for names in loaded]
print(json.dumps([sorted(heavy & names) for names in packages]))
"""


@pytest.mark.slow
def test_importing_and_submitting_loads_nothing_heavy_and_ulid_only_to_mint_an_id(
    moto: Engine,
) -> None:
    with AtomicMotoServer() as server:
        environment = {
            **TABLES.as_env(),
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "PYTHONPATH": str(ROOT),
        }
        create_tables(moto.dynamodb, TABLES)
        connect(moto.dynamodb, TABLES).queues.put_declared("billing", {}, {}, expected_revision=0)
        program = PROGRAM.format(heavy=sorted(HEAVY))
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    at_start, after_a_submit, after_minting = json.loads(answer.stdout)
    assert (at_start, after_a_submit, after_minting) == ([], [], ["ulid"])


@pytest.mark.slow
def test_the_benchmark_compares_three_programs() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "coldstart.py"), "1"]
    answer = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert [line.split()[0] for line in answer.stdout.splitlines()[1:]] == [
        "boto3",
        "key",
        "minted",
    ]
