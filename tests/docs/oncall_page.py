"""Runs the commands of docs/oncall.md, one after the other, on a simulated clock.

python -m tests.docs.oncall_page        writes what they print into the page

A console block holds commands, each after `$ `, and what they print. A comment `<!-- meanwhile:
NAME -->` between two blocks runs the method NAME of `Incident`.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import boto3
import pytest

from rdq_core import Abort, Registry
from rdq_core.cli.app import run
from rdq_core.cli.connection import OperatorClient
from rdq_core.domain.ids import id_at
from rdq_core.engine.events import Quiet
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime import principal, wiring
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.system import SystemIds
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from rdq_core.stores.memory_control import MemoryJobs
from rdq_core.testing.clock import FrozenClock
from rdq_core.testing.moto import atomic_moto

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "oncall.md"
_BLOCK = re.compile(
    r"(?P<open>^```console\n)(?P<inside>.*?)(?P<close>^```$)|<!-- meanwhile: (?P<method>\w+) -->",
    re.MULTILINE | re.DOTALL,
)
_QUEUES: Final = """
config_version: 1
queues:
  billing:
    owner: team-payments
    retry: {max_attempts: 3, initial_backoff: 30s, jitter: 0}
    index_shards: 1
  receipts: {index_shards: 1}
"""
_CHARGES: Final = """
def charge(order: dict) -> None:
    if order["amount"] <= 0:
        raise Abort("already_paid", f"order {order['id']} was paid in the shop")
    if not is_fixed:
        raise ConnectionError(f"POST /v1/charges: 410 Gone (request {order['id']}ab4)")
"""
_NOW_ONLY: Final = SweepLimits(horizon=timedelta(0), linger=timedelta(0))


class KnowsAnn:
    """Stands in for STS."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": "arn:aws:sts::123456789012:assumed-role/oncall/ann"}


class CountedIds(SystemIds):
    """Ids that are the same in every run."""

    def __init__(self, clock: FrozenClock, numbers: Iterator[int]) -> None:
        self._clock = clock
        self._numbers = numbers

    def task_id(self) -> str:
        return id_at(self._clock.now(), f"id {next(self._numbers)}")

    def token(self) -> str:
        return f"token {next(self._numbers)}"

    def nonce(self) -> str:
        return f"{next(self._numbers):016x}"


class Incident:
    """An installation, and what happens to it between two commands."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = FrozenClock(datetime(2026, 7, 20, 2, 14, tzinfo=UTC))
        client = boto3.client("dynamodb", region_name="eu-central-1")
        names, numbers = (
            Tables("tasks", "dlq", "control", "audit"),
            count(1),
        )
        create_tables(client, names)
        for name, value in {
            **names.as_env(),
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }.items():
            patch.setenv(name, value)
        patch.setattr(wiring, "dynamodb_client", lambda: client)
        patch.setattr(wiring, "_storage_clock", lambda *_: self.clock)
        patch.setattr(wiring, "SystemIds", lambda: CountedIds(self.clock, numbers))
        patch.setattr(principal, "_sts", KnowsAnn)
        patch.setattr(OperatorClient, "wait", lambda _, seconds: self.run_worker(seconds))
        self._application: dict[str, Any] = {
            "__name__": "payments.charges",
            "Abort": Abort,
            "is_fixed": False,
        }
        exec(compile(_CHARGES, "payments/charges.py", "exec"), self._application)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(_QUEUES.encode())))
        self.type("rdq queue apply -")

    def type(self, line: str) -> str:
        """Run a command. Returns what it prints, errors included."""
        program, *arguments = shlex.split(line)
        assert program == "rdq"
        self.clock.advance("5s")  # the operator reads and types
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            run([*arguments, "--utc"])
        return printed.getvalue()

    def run_worker(self, seconds: float) -> None:
        """Let time pass, then let the worker run what is due."""
        self.clock.advance(timedelta(seconds=seconds))
        registry = Registry(queues=["billing", "receipts"])
        registry.register("charge", self._application["charge"])
        registry.register("mail", lambda _receipt: None)
        # Without jobs: whether it ran one before or after its tasks would depend on its threads.
        parts = replace(connect(events=Quiet()), jobs=MemoryJobs())
        sweeper = build_sweeper(parts, registry, serves=registry.queues, worker="worker-7:41")
        sweeper.sweep(_NOW_ONLY)

    # -- meanwhile ---------------------------------------------------------------------------------

    def outage(self) -> None:
        """The bank switches its old API off: orders die. Two others die because they are wrong."""
        for number in range(14):
            amount = 0 if number in (5, 9) else 5
            order = f'{{"id": {2200 + number}, "amount": {amount}}}'
            self.type(
                f"rdq submit -q billing -H charge --payload '{order}' --key order-{2200 + number}"
            )
        for _ in range(3):
            self.run_worker(90)
        self.clock.advance("11m")

    def fix(self) -> None:
        """A worker that uses the new API is deployed."""
        self._application["is_fixed"] = True
        self.clock.advance("52m")


def regenerated(text: str) -> str:
    """The page with the current output of its commands."""
    with atomic_moto(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        incident = Incident(patch)

        def run_again(match: re.Match[str]) -> str:
            if match["method"]:
                getattr(incident, match["method"])()
                return match[0]
            commands = [line for line in match["inside"].splitlines() if line.startswith("$ ")]
            shown = [
                f"{command}\n{incident.type(command.removeprefix('$ '))}" for command in commands
            ]
            return match["open"] + "\n".join(shown) + match["close"]

        return _BLOCK.sub(run_again, text)


if __name__ == "__main__":
    DOCUMENT.write_text(regenerated(DOCUMENT.read_text()))
