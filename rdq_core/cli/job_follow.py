"""Follows a job in the foreground: runs or watches it, with a progress bar, until Ctrl-C."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Final, Self

from rdq_core.cli.connection import Document, OperatorClient
from rdq_core.cli.failures import CONFLICT, INTERRUPTED, print_refusals, remainder
from rdq_core.cli.output import Output, counted, note
from rdq_core.errors import RdqError, TaskConflict

_MAX_WAIT: Final = 1.0


class JobFollower:
    """Runs or watches one job to its end. Ctrl-C stops it at the end of the current page.

    `done_words` follow the number of tasks in the report: "12 tasks sent back to billing".
    """

    def __init__(self, output: Output, client: OperatorClient, done_words: str) -> None:
        self._output = output
        self._client = client
        self._done_words = done_words
        self._is_stopping = False

    def run(self, job_id: str, *, take_over: bool = False) -> int | None:
        """Run a job from this process to its end. Returns the exit code.

        `take_over` takes it from the process that runs it now.
        """
        with self._stop_on_interrupt(), ProgressBar(self._output) as bar:
            try:
                job = self._client.request(
                    "job.advance", job_id=job_id, take_over=take_over or None
                )
                while not _is_over(job) and not self._is_stopping:
                    bar.show(job)
                    self._client.wait(min((job["due_in_ms"] or 0) / 1000, _MAX_WAIT))
                    job = self._client.request("job.advance", job_id=job_id)
            except RdqError as failed:
                failed.hint = f"finished work is kept; continue with: {self._resume(job_id)}"
                raise
        if self._is_stopping and not _is_over(job):
            return self._pause(job)
        return self._report(job)

    def watch(self, job: Document) -> int | None:
        """Watch a job that other processes run, to its end. Returns the exit code."""
        with self._stop_on_interrupt(), ProgressBar(self._output) as bar:
            while not _is_over(job) and not self._is_stopping:
                bar.show(job)
                self._client.wait(_MAX_WAIT)
                job = self._client.request("job.get", job_id=job["job_id"])
        return INTERRUPTED if self._is_stopping and not _is_over(job) else self._report(job)

    def detach(self, job_id: str) -> None:
        """Report that the sweeps will run a job."""
        job = self._client.request("job.get", job_id=job_id)

        def print_detached() -> None:
            self._output.line(f"the sweeps will run job {job_id}")
            self._output.next(f"rdq job watch {job_id}", f"rdq job cancel {job_id}")

        self._output.show(_summary(job), print_detached)

    @contextlib.contextmanager
    def _stop_on_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C end the loop after its page, and the second end the command."""
        try:
            before = signal.signal(signal.SIGINT, self._stop)
        except ValueError:  # only the main thread can set signal handlers
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            raise KeyboardInterrupt
        self._is_stopping = True

    def _resume(self, job_id: str) -> str:
        return self._output.typed(f"rdq job resume {job_id}")

    def _pause(self, job: Mapping[str, Any]) -> int | None:
        try:
            job = self._client.request("job.pause", job_id=job["job_id"])
        except TaskConflict:  # a sweep finished the job after our last look
            return self._report(self._client.request("job.get", job_id=job["job_id"]))
        note(f"rdq: stopped after {counted(job['done'], 'task')}; the others are unchanged")
        note(f"     continue with: {self._resume(job['job_id'])}")
        return INTERRUPTED

    def _report(self, job: Mapping[str, Any]) -> int | None:
        self._output.show(_summary(job), lambda: self._print(job))
        code = print_refusals(job, as_json=not self._output.is_for_people)
        return code or (None if job["state"] == "done" else CONFLICT)

    def _print(self, job: Mapping[str, Any]) -> None:
        self._output.line(f"{counted(job['done'], 'task')} {self._done_words}{remainder(job)}")
        if job["state"] == "stopped":
            self._output.line(f"STOPPED: {job['note']}; the others are unchanged")
            self._output.next(f"rdq dlq groups {job['queue']}", f"rdq job get {job['job_id']}")
        elif job["state"] == "paused":
            self._output.line("paused by another operator; the others are unchanged")
            self._output.next(f"rdq job resume {job['job_id']}")
        else:
            self._output.next(f"rdq status {job['queue']}")


class ProgressBar:
    """A progress bar on standard error, if that is a terminal and the output is for people."""

    def __init__(self, output: Output) -> None:
        self._progress = _progress() if output.is_for_people and sys.stderr.isatty() else None
        self._bar: Any = None if self._progress is None else self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, job: Mapping[str, Any]) -> None:
        """Show how far a job is."""
        if self._progress is None:
            return
        canary = job["canary"]
        is_watching = canary and canary["watched"]
        self._progress.update(
            self._bar,
            completed=job["done"] + job["skipped"] + job["failed"],
            total=job["expected"],
            description=f"watching the first {canary['sent']}" if is_watching else job["state"],
        )


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _is_over(job: Mapping[str, Any]) -> bool:
    return job["due_in_ms"] is None


def _summary(job: Mapping[str, Any]) -> Document:
    counts = {name: job[name] for name in ("selected", "done", "skipped", "failed")}
    return {**counts, "dry_run": False, "job_id": job["job_id"]}
