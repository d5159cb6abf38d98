"""The task queues that are compared, each on a server of its own: ministack, PostgreSQL, Redis."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

ROOT: Final = Path(__file__).resolve().parents[1]
APPS: Final = ROOT / "benchmarks" / "apps"
BIN: Final = ROOT / ".venv" / "bin"
DEBIAN_POSTGRES: Final = Path("/usr/lib/postgresql")


class Contender(Protocol):
    """A task queue with its server: how it is told to work, to submit, and how many requests it has
    sent.
    """

    name: str

    def fresh(self) -> None:
        """Forget every task."""
        ...

    def worker(self, concurrency: int) -> list[str]:
        """The command of a worker."""
        ...

    def submit(self, count: int, gap: float, delay: float) -> list[str]:
        """The command that submits."""
        ...

    def requests(self) -> int:
        """How many requests its server has had."""
        ...

    @property
    def environment(self) -> dict[str, str]:
        """What both commands need to know."""
        ...


@dataclass
class Rdq:
    """rdq on ministack, with a poll interval."""

    endpoint: str
    folder: Path
    poll: str
    accounts: Iterator[int]
    account: int = 0

    @property
    def name(self) -> str:
        return f"rdq, polling every {self.poll}"

    def fresh(self) -> None:
        self.account = next(self.accounts)
        self._rdq("init")
        self._configure(8)

    def worker(self, concurrency: int) -> list[str]:
        self._configure(concurrency)
        return [str(BIN / "rdq"), "worker", "rdq_app"]

    def submit(self, count: int, gap: float, delay: float) -> list[str]:
        return [str(BIN / "python"), "rdq_app.py", str(count), str(gap), str(delay)]

    def requests(self) -> int:
        path = Path(self.environment["REQUESTS"])
        return path.stat().st_size if path.exists() else 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": f"{self.account:012d}",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            **{
                f"RDQ_{table.upper()}_TABLE": f"rdq-{table}"
                for table in ("tasks", "dlq", "control", "audit")
            },
            "REQUESTS": str(self.folder / f"requests-{self.account}"),
        }

    def _configure(self, concurrency: int) -> None:
        config = f"""
config_version: 1
queues: {{bench: {{dispatch: {{concurrency: {concurrency}, poll_interval: {self.poll}}}}}}}
"""
        self._rdq("queue", "apply", "-", given=config)

    def _rdq(self, *arguments: str, given: str = "") -> None:
        environment = {**os.environ, **self.environment}
        command = [BIN / "rdq", *arguments]
        subprocess.run(
            command, env=environment, input=given, text=True, check=True, capture_output=True
        )


@dataclass
class Celery:
    """Celery on Redis."""

    python: str
    port: int
    name: str = "Celery on Redis"

    def fresh(self) -> None:
        self._redis("FLUSHALL")

    def worker(self, concurrency: int) -> list[str]:
        options = ["--without-gossip", "--without-mingle", "--loglevel=ERROR"]
        return [
            self.python,
            "-m",
            "celery",
            "-A",
            "celery_app",
            "worker",
            f"--concurrency={concurrency}",
            *options,
        ]

    def submit(self, count: int, gap: float, delay: float) -> list[str]:
        return [self.python, "celery_app.py", str(count), str(gap), str(delay)]

    def requests(self) -> int:
        return int(
            dict(line.split(":") for line in self._redis("INFO", "stats").split())[
                "total_commands_processed"
            ]
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"BROKER": f"redis://127.0.0.1:{self.port}/0"}

    def _redis(self, *command: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall((" ".join(command) + "\r\n").encode())
            connection.settimeout(0.3)
            answer = b""
            with contextlib.suppress(TimeoutError):
                while chunk := connection.recv(65_536):
                    answer += chunk
        lines = answer.decode().splitlines()
        return "\n".join(line for line in lines if ":" in line and not line.startswith(("#", "$")))


@dataclass
class Procrastinate:
    """Procrastinate on PostgreSQL."""

    python: str
    port: int
    name: str = "Procrastinate on PostgreSQL"
    _is_set_up: bool = False

    def fresh(self) -> None:
        if not self._is_set_up:
            self._run("-m", "procrastinate", "--app", "procrastinate_app.app", "schema", "--apply")
            self._is_set_up = True
        self._sql("TRUNCATE procrastinate_jobs CASCADE")

    def worker(self, concurrency: int) -> list[str]:
        options = ["worker", "--concurrency", str(concurrency)]
        return [self.python, "-m", "procrastinate", "--app", "procrastinate_app.app", *options]

    def submit(self, count: int, gap: float, delay: float) -> list[str]:
        return [self.python, "procrastinate_app.py", str(count), str(gap), str(delay)]

    def requests(self) -> int:
        return int(self._sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"))

    @property
    def environment(self) -> dict[str, str]:
        return {"CONNINFO": f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"}

    def _sql(self, statement: str) -> str:
        code = (
            "import os, sys, psycopg\n"
            "connection = psycopg.connect(os.environ['CONNINFO'], autocommit=True)\n"
            "cursor = connection.execute(sys.argv[1])\n"
            "print(cursor.fetchone()[0] if cursor.description else '')"
        )
        return self._run("-c", code, statement)

    def _run(self, *arguments: str) -> str:
        environment = {**os.environ, **self.environment, "MARKS": os.devnull}
        done = subprocess.run(
            [self.python, *arguments],
            cwd=APPS,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int, **options: Any) -> Iterator[None]:
    """A server until the end, reachable from the start."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        give_up = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[int]:
    program, port = shutil.which("redis-server"), free_port()
    if program is None:
        raise RuntimeError("redis-server is not installed")
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(folder),
        "--save",
        "",
    ]
    with running(command, port):
        yield port


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[int]:
    programs = next(iter(sorted(DEBIAN_POSTGRES.glob("*/bin"), reverse=True)), None)
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed")
    port = free_port()
    options: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:  # it refuses to run as root; its package brings a user of its own
        options["user"] = "postgres"
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    data = str(folder / "data")
    initdb = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "postgres"]
    subprocess.run(initdb, check=True, capture_output=True, **options)
    command = [
        str(programs / "postgres"),
        "-D",
        data,
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-k",
        str(folder),
    ]
    with running(command, port, **options):
        yield port


def peers_python(given: str | None, folder: Path) -> str | None:
    """The Python that has the peers' packages."""
    if given is not None:
        return given
    environment = folder / "peers"
    packages = ["procrastinate", "psycopg[binary]", "celery[redis]"]
    try:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True, capture_output=True)
        subprocess.run(
            [environment / "bin" / "pip", "install", "--quiet", *packages],
            check=True,
            capture_output=True,
        )
    except subprocess.CalledProcessError as failed:
        print(f"no environment for the peers: {failed.stderr.decode()[-200:]}", file=sys.stderr)
        return None
    return str(environment / "bin" / "python")
