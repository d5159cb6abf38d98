"""Workers that die and stand still all the time, as many of them as ever."""

import math
import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Final, Self

from rdq_core.cli.failures import UNAVAILABLE

WORKERS: Final = 4
LONGER_THAN_A_LEASE: Final = (3.0, 7.0)
"""Seconds for which a stopped one stands still, at least and at most."""


class Crew:
    """Four workers, some of which may stand still. None outlives the `with`."""

    def __init__(self, start: Callable[[], "subprocess.Popen[bytes]"], dice: random.Random) -> None:
        self._start = start
        self._dice = dice
        self._workers: list[subprocess.Popen[bytes]] = []
        self._wakes_at: dict[int, float] = {}
        self.killed = self.stopped = 0

    def harm(self, sender: int) -> None:
        """Kill one and stop one, in turn. Half of the killed are who has just had an effect, and
        not said so yet.
        """
        if self.killed <= self.stopped:
            self._kill(sender if self._dice.random() < 0.5 else self._anybody())
        else:
            self._stop(self._anybody())

    def tend(self) -> None:
        """Wake up whose time has come, and replace who went because storage didn't answer, as a
        supervisor does.
        """
        for worker in list(self._workers):
            if time.monotonic() > self._wakes_at.get(worker.pid, math.inf):
                worker.send_signal(signal.SIGCONT)
                del self._wakes_at[worker.pid]
            if worker.poll() is not None:
                assert worker.returncode == UNAVAILABLE
                self._replace(worker)

    def __enter__(self) -> Self:
        try:
            self._workers.extend(self._start() for _ in range(WORKERS))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()

    def _anybody(self) -> int:
        return self._dice.choice(self._workers).pid

    def _kill(self, pid: int) -> None:
        for worker in list(self._workers):
            if worker.pid == pid:
                worker.kill()
                self._replace(worker)
                self.killed += 1

    def _stop(self, pid: int) -> None:
        for worker in self._workers:
            if worker.pid == pid and pid not in self._wakes_at:
                worker.send_signal(signal.SIGSTOP)
                self._wakes_at[pid] = time.monotonic() + self._dice.uniform(*LONGER_THAN_A_LEASE)
                self.stopped += 1

    def _replace(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.communicate()
        self._wakes_at.pop(worker.pid, None)
        self._workers[self._workers.index(worker)] = self._start()
