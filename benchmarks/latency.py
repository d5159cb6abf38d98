"""How late rdq starts tasks, its requests when idle, and its cost per task, next to Procrastinate
and Celery.

    .venv/bin/python benchmarks/latency.py [--peers PYTHON] [--quick]

rdq runs on ministack, Procrastinate on PostgreSQL and Celery on Redis, each in its own `worker`
processes with handlers that only record the time. The servers are started here, on 127.0.0.1 and in
folders that are removed afterwards. `--peers` is the Python of an environment with procrastinate,
psycopg and celery[redis]; without it one is made for this run. A peer whose server or package is
missing is left out, and the result says so.

ministack is a test server written in Python, not AWS: rdq's rates here are its rates. The shape of
the latency (a poll, or a known due time), the number of requests, and the worker's own CPU time per
task apply to AWS too.
"""

import argparse
import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from contenders import (
    APPS,
    ROOT,
    Celery,
    Contender,
    Procrastinate,
    Rdq,
    peers_python,
    postgres,
    redis,
)

CONCURRENCIES: Final = (1, 8, 32)
PATIENCE: Final = 180.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Run:
    """One worker of a contender, and the times that its handlers record."""

    contender: Contender
    marks: Path
    concurrency: int = 8
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def environment(self) -> dict[str, str]:
        paths = {"PYTHONPATH": str(APPS), "MARKS": str(self.marks), "NO_PROXY": "127.0.0.1"}
        return {**os.environ, **self.contender.environment, **paths}

    def __enter__(self) -> Self:
        command = self.contender.worker(self.concurrency)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=APPS, env=self.environment, **quiet)
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def submit(self, count: int, *, gap: float = 0.0, delay: float = 0.0) -> None:
        subprocess.run(
            self.contender.submit(count, gap, delay), cwd=APPS, env=self.environment, check=True
        )

    def recorded(self) -> list[tuple[float, float]]:
        if not self.marks.exists():
            return []
        lines = self.marks.read_text().splitlines()
        return [(float(started), float(due)) for started, due in (line.split() for line in lines)]

    def wait_for(self, count: int) -> None:
        give_up = time.monotonic() + PATIENCE
        while len(self.recorded()) < count:
            if time.monotonic() > give_up:
                raise RuntimeError(
                    f"{self.contender.name}: {len(self.recorded())} of {count} tasks ran"
                )
            time.sleep(0.01)

    def cpu_seconds(self) -> float:
        """CPU time so far of the worker and its child processes."""
        assert self.process is not None
        return sum(_cpu_of(pid) for pid in _family(self.process.pid))


def _family(pid: int) -> list[int]:
    children = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += [int(child) for child in path.read_text().split()]
    return [pid, *(member for child in children for member in _family(child))]


def _cpu_of(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


@dataclass
class Result:
    """The measures of one contender by name: milliseconds, requests a minute, tasks a second."""

    name: str
    measures: dict[str, float] = field(default_factory=dict)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def measure(contender: Contender, folder: Path, samples: int, tasks: int, idle: float) -> Result:
    """Take every measure of one contender."""
    result = Result(contender.name)
    contender.fresh()
    with Run(contender, _new_file(folder)) as run:
        run.submit(1)
        run.wait_for(1)
        result.measures |= lateness(run, "due at submit", samples, delay=0.0)
        result.measures |= lateness(run, "due 3 s later", samples, delay=3.0)
        time.sleep(3)
        result.measures["idle requests a minute"] = requests_a_minute(contender, idle)
    for concurrency in CONCURRENCIES:
        contender.fresh()
        result.measures |= rate(Run(contender, _new_file(folder), concurrency), tasks)
    return result


def lateness(run: Run, kind: str, samples: int, *, delay: float) -> dict[str, float]:
    """How long after its due time a task starts on an otherwise idle worker."""
    before = len(run.recorded())
    run.submit(samples, gap=0.1, delay=delay)
    run.wait_for(before + samples)
    late = [(started - due) * 1000 for started, due in run.recorded()[before:]]
    return {f"{kind}, p{percent}, ms": quantile(late, percent / 100) for percent in (50, 95, 99)}


def requests_a_minute(contender: Contender, idle: float) -> float:
    before, began = contender.requests(), time.monotonic()
    time.sleep(idle)
    return (contender.requests() - before) * 60 / (time.monotonic() - began)


def rate(run: Run, tasks: int) -> dict[str, float]:
    """How fast a worker drains a backlog, from the first handler's start to the last one's."""
    run.submit(tasks)
    with run:
        run.wait_for(1)
        cpu, first = run.cpu_seconds(), len(run.recorded())
        run.wait_for(tasks)
        cpu = run.cpu_seconds() - cpu
        started = sorted(moment for moment, _ in run.recorded())
    return {
        f"tasks a second, {run.concurrency} at once": (tasks - 1)
        / max(started[-1] - started[0], 1e-6),
        f"CPU a task, {run.concurrency} at once, ms": cpu * 1000 / max(tasks - first, 1),
    }


def _new_file(folder: Path) -> Path:
    return folder / f"marks-{time.time_ns()}"


def table(results: Sequence[Result]) -> str:
    """One row per measure; in brackets the ratio to the first column."""
    lines = [
        "| | " + " | ".join(result.name for result in results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    for name, first in results[0].measures.items():
        values = [result.measures[name] for result in results]
        ratios = ["", *(f" ({value / first:.2f})" if first else "" for value in values[1:])]
        cells = [f"{value:,.1f}{ratio}" for value, ratio in zip(values, ratios, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine() -> str:
    names = [
        line.partition(":")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    model = names[0].strip() if names else platform.machine()
    return (
        f"{os.cpu_count()} cores ({model}), {platform.system()}, Python {platform.python_version()}"
    )


def version_of(python: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def peers(stack: ExitStack, given: str | None, folder: Path) -> tuple[list[Contender], list[str]]:
    """The peers available on this machine, and their versions. Missing ones are reported."""
    available: list[Contender] = []
    versions: list[str] = []
    python = peers_python(given, folder)
    if python is None:
        return available, versions
    for server, kind, package in (
        (postgres, Procrastinate, "procrastinate"),
        (redis, Celery, "celery"),
    ):
        home = folder / server.__name__
        home.mkdir()
        try:
            version = version_of(python, package)
            available.append(kind(python, stack.enter_context(server(home))))
            versions.append(f"{package} {version}")
        except (RuntimeError, OSError, subprocess.CalledProcessError) as missing:
            print(f"{kind.__name__} is left out: {missing}", file=sys.stderr)
    return available, versions


def main() -> None:
    # SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that the servers are ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", metavar="PYTHON", help="the Python of an environment with the peers' packages"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of everything, to see that it runs"
    )
    chosen = parser.parse_args()
    sizes = (20, 100, 6.0) if chosen.quick else (200, 1000, 60.0)
    sys.path.insert(0, str(ROOT))
    from tests.support.ministack import Ministack

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rdq-bench-")))
        folder.chmod(0o755)  # for PostgreSQL, which runs as a user of its own
        endpoint, accounts = stack.enter_context(Ministack()).endpoint_url, iter(range(1, 1000))
        others, versions = peers(stack, chosen.peers, folder)
        ours: list[Contender] = [Rdq(endpoint, folder, poll, accounts) for poll in ("1s", "100ms")]
        results = []
        for contender in (*ours, *others):
            print(f"measuring {contender.name} ...", file=sys.stderr)
            try:
                results.append(measure(contender, folder, *sizes))
            except (RuntimeError, subprocess.CalledProcessError) as failed:
                print(f"{contender.name} is left out: {failed}", file=sys.stderr)
    print(f"Machine: {machine()}. Peers found: {', '.join(versions) or 'none'}.\n")
    print(table(results))


if __name__ == "__main__":
    main()
