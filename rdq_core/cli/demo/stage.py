"""What the demo plays on: an engine in this process, the receiver, and worker processes that are started again."""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

import yaml

from rdq_core.cli.demo.receiver import Receiver
from rdq_core.config.document import parse_document
from rdq_core.engine.audit import Principal
from rdq_core.runtime.environment import LOCAL_TABLES
from rdq_core.runtime.log import Quiet
from rdq_core.runtime.wiring import Parts, connect, dynamodb_client

QUEUE: Final = "webhooks"
HANDLER: Final = "deliver-webhook"
WORKERS: Final = 2
_MODULE: Final = "handlers"
_STOPS_WITHIN: Final = 8.0
_FOREIGN_SETTINGS: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL_DYNAMODB")

OnEvent = Callable[["WorkerProcess", Mapping[str, Any]], None]


class WorkerProcess:
    """A child that runs `rdq worker`; each event of its log is passed on, from a thread of its own."""

    def __init__(self, number: int, folder: Path, on_event: OnEvent) -> None:
        self.number = number
        self._on_event = on_event
        self.last_words: deque[str] = deque(maxlen=5)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "rdq_core.cli", "worker", _MODULE],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, args=[self._process.stderr], daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end, as a deploy does, and wait."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1)

    def _read(self, log: IO[bytes] | None) -> None:
        for line in log or ():
            try:
                event = json.loads(line)
            except ValueError:
                self.last_words.append(line.decode(errors="replace").rstrip())
            else:
                self._on_event(self, event)


class Stage:
    """The tables with the demo's queue, the receiver, and the workers."""

    def __init__(self, folder: Path, on_event: OnEvent) -> None:
        self.folder = folder
        self._on_event = on_event
        self._open = ExitStack()
        self._workers: list[WorkerProcess] = []
        self.environment: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        from rdq_core.testing.moto import AtomicMotoServer

        with ExitStack() as opening:
            engine = opening.enter_context(AtomicMotoServer())
            table = yaml.safe_load((self.folder / "receiver.yaml").read_text(encoding="utf-8"))
            self.receiver = opening.enter_context(Receiver(table["today"], table["mended"]))
            self.environment = _environment(engine.endpoint_url, self.receiver.url)
            opening.enter_context(_settings(self.environment))
            self.parts = self._with_tables()
            opening.callback(self._stop_workers)
            self._workers += [WorkerProcess(number + 1, self.folder, self._on_event) for number in range(WORKERS)]
            self._open = opening.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def tend(self) -> Iterator[WorkerProcess]:
        """The workers that have died since the last look; each has been started again."""
        for place, worker in enumerate(self._workers):
            if worker.exit_code is not None:
                self._workers[place] = WorkerProcess(worker.number, self.folder, self._on_event)
                yield worker

    def _with_tables(self) -> Parts:
        from rdq_core.stores.dynamodb.schema import create_tables

        create_tables(dynamodb_client(), LOCAL_TABLES)
        parts = connect(tables=LOCAL_TABLES, events=Quiet())
        queues = parse_document((self.folder / "queues.yaml").read_bytes())
        parts.editor(Principal("rdq demo")).apply(queues)
        return parts

    def _stop_workers(self) -> None:
        stopping = [threading.Thread(target=worker.stop) for worker in self._workers]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()


def _environment(engine: str, receiver: str) -> dict[str, str]:
    """What this process and its workers find: nothing of the user's own AWS, and no proxy in between."""
    return {
        **LOCAL_TABLES.as_env(),
        "AWS_ENDPOINT_URL": engine,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "WEBHOOK_RECEIVER": receiver,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@contextmanager
def _settings(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, and none of the user's own AWS settings, for as long as the demo lasts."""
    before = dict(os.environ)
    for name in _FOREIGN_SETTINGS:
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
