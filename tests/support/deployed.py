"""rdq's functions on ministack, each in a process of its own, as a stack would deploy them."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3

from rdq_core.client.rdq import Rdq, parts_of
from rdq_core.stores.dynamodb.schema import create_tables
from tests.support.engines import Engine
from tests.support.stores import TABLES, Dynamo

ROOT: Final = Path(__file__).resolve().parents[2]
ROLE: Final = "arn:aws:iam::000000000000:role/rdq"
TIME: Final = 300
"""Seconds that an invocation may take: far more than a slow machine needs to start a few processes.
"""


@dataclass(slots=True)
class Deployment:
    """The tables, and the functions that are deployed beside them."""

    engine: Engine
    rdq: Rdq = field(init=False)
    functions: Any = field(init=False)

    def __post_init__(self) -> None:
        create_tables(self.engine.dynamodb, TABLES)
        self.rdq = Rdq(client=self.engine.dynamodb, tables=TABLES)
        self.functions = self.engine.client("lambda", read_timeout=TIME)

    def configure(self, queue: str, **declared: Any) -> None:
        parts_of(self.rdq).queues.put_declared(queue, declared, {}, expected_revision=0)

    def deploy(
        self, name: str, handler: str, *, code: Mapping[str, str] | None = None, **environ: str
    ) -> str:
        """A function: rdq's own by its handler, or one of this `code`. Its ARN."""
        variables = {
            **TABLES.as_env(),
            "PYTHONPATH": str(Path(boto3.__file__).parents[1]),
            **environ,
        }
        answer = self.functions.create_function(
            FunctionName=name,
            Runtime="python3.12",
            Role=ROLE,
            Handler=handler,
            Timeout=TIME,
            Environment={"Variables": variables},
            Code={"ZipFile": _zipped(_own_code() | dict(code or {}))},
        )
        arn: str = answer["FunctionArn"]
        return arn

    def invoke(self, name: str, event: object) -> Any:
        """Call a function, and what it answers."""
        answer = self.functions.invoke(FunctionName=name, Payload=json.dumps(event).encode())
        told = json.loads(answer["Payload"].read() or b"null")
        assert "FunctionError" not in answer, told
        return told

    def items_of(self, task_id: str) -> list[str]:
        """What is stored of a task, by its kinds."""
        return sorted(Dynamo(self.engine).items_of(task_id))

    def remove_row(self, task_id: str) -> None:
        """Remove a state row, as TTL does."""
        key = {"task_id": {"S": task_id}, "kind": {"S": "T"}}
        self.engine.dynamodb.delete_item(TableName=TABLES.tasks, Key=key)

    def follow_the_stream(self, name: str) -> None:
        """Let a function have the records of the tasks table's stream."""
        table = self.engine.dynamodb.describe_table(TableName=TABLES.tasks)["Table"]
        self.functions.create_event_source_mapping(
            EventSourceArn=table["LatestStreamArn"],
            FunctionName=name,
            StartingPosition="TRIM_HORIZON",
            BatchSize=10,
        )


def _own_code() -> dict[str, str]:
    files = [*ROOT.glob("functions/*.py"), *ROOT.glob("rdq_core/**/*.py")]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def _zipped(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in files.items():
            package.writestr(name, text)
    return buffer.getvalue()
