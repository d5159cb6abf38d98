"""The demo's worker processes: each is `rdq worker`, started again when it dies.

They end when the demo's process ends, even by SIGKILL.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

_STOPS_WITHIN: Final = 8.0

OnEvent = Callable[[int, Mapping[str, Any]], None]
"""Gets the worker's number and an event of its log, on a thread of that worker."""


class WorkerProcess:
    """A worker process and its successors."""

    def __init__(self, number: int, module: str, on_event: OnEvent) -> None:
        self.number = number
        self.last_lines: deque[str] = deque(maxlen=5)
        self._module = module
        self._on_event = on_event
        self._start()

    def restart_if_dead(self) -> int | None:
        """Replace the process if it died. Returns the exit code of the dead one, else None."""
        exit_code = self._process.poll()
        if exit_code is not None:
            self._start()
        return exit_code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait for the end; send SIGKILL if it takes too long."""
        try:
            self._process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1)

    def _start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__, self._module],
            stdin=subprocess.PIPE,  # closed by the end of this process: see main
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read, args=[self._process.stderr], daemon=True)
        self._reader.start()

    def _read(self, log: IO[bytes]) -> None:
        for line in log:
            try:
                event = json.loads(line)
            except ValueError:
                self.last_lines.append(line.decode(errors="replace").rstrip())
            else:
                self._on_event(self.number, event)


@contextmanager
def running_workers(
    count: int, module: str, on_event: OnEvent
) -> Iterator[Sequence[WorkerProcess]]:
    """Run workers with the handlers of a module."""
    workers: list[WorkerProcess] = []
    try:
        for number in range(1, count + 1):
            workers.append(WorkerProcess(number, module, on_event))  # noqa: PERF401 - keep the first if the second fails
        yield workers
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def main() -> int:
    """Run `rdq worker` in this process, which ends when its standard input does."""
    from rdq_core.cli.app import run

    threading.Thread(target=_exit_at_end_of_input, name="rdq-demo", daemon=True).start()
    return run(["worker", *sys.argv[1:]])


def _exit_at_end_of_input() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock an ordinary exit waits for
    os._exit(1)  # the engine is gone too: there is nothing to hand back


if __name__ == "__main__":
    sys.exit(main())
