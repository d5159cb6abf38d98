"""ministack as the test session's own server: on the loopback interface, on a free port, stopped by
its pid.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
EXECUTABLE: Final = ROOT / ".venv-ministack" / "bin" / "ministack"
READY_WITHIN: Final = 30.0


class Ministack:
    """A running ministack; empty at the start, gone at the end. It never answers from outside this
    machine.

    `auth=True` makes it decide requests by IAM, as AWS does.
    """

    def __init__(self, *, auth: bool = False) -> None:
        if not EXECUTABLE.exists():
            raise RuntimeError(f"{EXECUTABLE} is missing; `make test` sets it up")
        self._folder = Path(tempfile.mkdtemp(prefix="rdq-ministack-"))
        self.endpoint_url = f"http://127.0.0.1:{_free_port()}"
        self._process = self._start(auth=auth)
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The server's process, which is also the leader of its group."""
        return self._process.pid

    def log(self) -> str:
        """What the server has printed so far."""
        return (self._folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End the server, and the processes it started for Lambda functions, and remove its folder."""
        # They are in a session of their own, so the group holds nobody else's processes.
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _start(self, *, auth: bool) -> subprocess.Popen[bytes]:
        settings = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "GATEWAY_PORT": self.endpoint_url.rpartition(":")[2],
            "AUTH": str(auth).lower(),
            # They would listen on fixed ports, where a second ministack fails, and one of them on
            # every interface.
            "IOT_MTLS_ENABLED": "false",
            "SFTP_ENABLED": "false",
        }
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(
                [EXECUTABLE],
                cwd=self._folder,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        # Real time, because this waits for a real process.
        give_up = time.monotonic() + READY_WITHIN
        while not _answers(f"{self.endpoint_url}/_ministack/ready"):
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"ministack ended with {self._process.returncode}:\n{self.log()}"
                )
            if time.monotonic() > give_up:
                raise RuntimeError(
                    f"ministack was not ready within {READY_WITHIN:.0f} s:\n{self.log()}"
                )
            time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
