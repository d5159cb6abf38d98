"""The command line as a shell sees it, on the moto of this process."""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import pytest

from rdq_core import Abort, Registry
from rdq_core.cli.app import run
from rdq_core.cli.connection import OperatorClient
from rdq_core.engine.events import Quiet
from rdq_core.engine.ports import Clock
from rdq_core.engine.report import QueueReport
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime import principal, wiring
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.schema import Tables, create_tables
from tests.support.engines import Engine

ANN: Final = "arn:aws:iam::123456789012:user/ann"
QUEUES: Final = """
config_version: 1
queues:
  billing:
    owner: team-payments
    limits: {max_payload_size: 1KiB, max_redrives: 2}
  email: {}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What was printed, which must be one JSON document and nothing else."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The printed error, which must be one line of JSON."""
        (line,) = self.err.splitlines()
        error: dict[str, Any] = json.loads(line)["error"]
        return error


class KnowsAnn:
    """Stands in for STS."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": ANN}


class Shell(Protocol):
    def __call__(self, *arguments: str, given: bytes = b"") -> Ended: ...


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Run a command line, whatever there is around it."""
    monkeypatch.setenv("COLUMNS", "80")

    def typed(*arguments: str, given: bytes = b"") -> Ended:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = run(arguments)
        return Ended(code, *capsys.readouterr())

    return typed


@pytest.fixture
def tables(moto: Engine, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Empty tables that the environment names."""
    names = Tables("tasks", "dlq", "control", "audit")
    create_tables(moto.dynamodb, names)
    for name, value in names.as_env().items():
        monkeypatch.setenv(name, value)
    return names


class Ahead:
    """The clock that commands go by, ahead of the real one by what they have waited."""

    def __init__(self, clock: Clock, waited: list[float]) -> None:
        self._clock = clock
        self._waited = waited

    def now(self) -> datetime:
        return self._clock.now() + timedelta(milliseconds=round(sum(self._waited) * 1000))

    def monotonic(self) -> float:
        return self._clock.monotonic() + sum(self._waited)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of all commands, which move their clock and take no time."""
    spans: list[float] = []
    made = wiring._storage_clock
    monkeypatch.setattr(wiring, "_storage_clock", lambda *client: Ahead(made(*client), spans))
    monkeypatch.setattr(OperatorClient, "wait", lambda _, seconds: spans.append(seconds))
    return spans


@pytest.fixture
def rdq(
    shell: Shell, moto: Engine, tables: Tables, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """Run a command line where the queues `billing` and `email` are configured."""
    client = (
        moto.dynamodb
    )  # one for all commands of the test: each process makes its own, which takes 100 ms
    monkeypatch.setattr(wiring, "dynamodb_client", lambda: client)
    monkeypatch.setattr(principal, "_sts", KnowsAnn)
    assert shell("queue", "apply", "-", given=QUEUES.encode()).code == 0
    return shell


DeadLetter = Callable[..., str]


@pytest.fixture
def dead_letter(rdq: Shell) -> DeadLetter:
    """Makes a dead task of `billing`, whose handler aborted with this code, and returns its id."""

    def make(
        code: str = "card_expired", message: str = "the card has expired", *arguments: str
    ) -> str:
        answer = rdq(
            "submit", "-q", "billing", "-H", "charge", "--payload", "x", "--json", *arguments
        ).document
        sweep_once(code, message)
        task_id: str = answer["submitted"][0]["id"]
        return task_id

    return make


def sweep_once(code: str, message: str) -> None:
    """Run what is due in `billing` now on a handler that aborts."""

    def charge(_: bytes) -> None:
        raise Abort(code, message)

    assert run_once(charge).dead_lettered >= 1


def run_once(charge: Callable[[bytes], object]) -> QueueReport:
    """Run what is due in `billing` now on this handler."""
    registry = Registry(queues=["billing"])
    registry.register("charge", charge)
    limits = SweepLimits(horizon=timedelta(0), linger=timedelta(0))
    sweeper = build_sweeper(connect(events=Quiet()), registry, serves=["billing"], worker="test")
    return sweeper.sweep(limits).total


@pytest.fixture(autouse=True)
def _signals_stay() -> Iterator[None]:
    """Commands may install handlers of their own; other tests must not meet them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
