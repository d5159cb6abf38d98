"""What the demo plays on: an engine in this process, the receiver, and worker processes that are
started again.
"""

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

import yaml

from rdq_core.cli.demo.receiver import Receiver
from rdq_core.cli.local import served, settings
from rdq_core.config.document import parse_document
from rdq_core.engine.auditor import Principal
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.runtime.log import Quiet
from rdq_core.runtime.wiring import Parts, connect

QUEUE: Final = "webhooks"
HANDLER: Final = "deliver-webhook"
WORKERS: Final = 2
_MODULE: Final = "handlers"
_STOPS_WITHIN: Final = 8.0

OnEvent = Callable[["WorkerProcess", Mapping[str, Any]], None]


class WorkerProcess:
    """A child that runs `rdq worker`; each event of its log is passed on, from a thread of its own."""

    def __init__(self, number: int, folder: Path, on_event: OnEvent) -> None:
        self.number = number
        self._on_event = on_event
        self.last_words: deque[str] = deque(maxlen=5)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "rdq_core.cli.demo.child", _MODULE],
            cwd=folder,
            stdin=subprocess.PIPE,
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
        with ExitStack() as opening:
            engine = opening.enter_context(served())
            table = yaml.safe_load((self.folder / "receiver.yaml").read_text(encoding="utf-8"))
            self.receiver = opening.enter_context(Receiver(table["today"], table["mended"]))
            self.environment = {**engine, "WEBHOOK_RECEIVER": self.receiver.url}
            opening.enter_context(settings(self.environment))
            self.parts = self._with_queue()
            opening.callback(self._stop_workers)
            self._workers += [
                WorkerProcess(number + 1, self.folder, self._on_event) for number in range(WORKERS)
            ]
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

    def _with_queue(self) -> Parts:
        parts = connect(events=Quiet())
        queues = parse_document((self.folder / "queues.yaml").read_bytes())
        QueueEditor(parts, parts.auditor(Principal("rdq demo"))).apply(queues)
        return parts

    def _stop_workers(self) -> None:
        stopping = [threading.Thread(target=worker.stop) for worker in self._workers]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
