"""`rdq job`: bulk operations; and following one in a terminal, from wherever it was started."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.bar import Bar
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking, Document
from rdq_core.cli.examples import examples
from rdq_core.cli.failures import CONFLICT, INTERRUPTED
from rdq_core.cli.ids import shortened, whole_job_id
from rdq_core.cli.mutations import ended, left
from rdq_core.cli.queue_edits import Reason
from rdq_core.cli.screen import Screen, ago, counted, note
from rdq_core.domain.times import parse_time
from rdq_core.errors import RdqError, TaskConflict

app: Final = typer.Typer(help="Bulk operations: redrives and purges.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
_LONGEST_WAIT: Final = 1.0
_OPEN: Final = ("open", "paused")


@command(app, "list", asks=True, epilog=examples("rdq job list"))
def list_jobs(
    screen: Screen,
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 20,
) -> None:
    """List bulk operations: the open ones, then those that have ended, the newest first."""
    ask = Asking(screen)
    found = ask("job.list", limit=limit)
    screen.show(found, lambda: _tell_jobs(screen, ask, found["items"]))


def _tell_jobs(screen: Screen, ask: Asking, jobs: list[Mapping[str, Any]]) -> None:
    if not jobs:
        screen.line("there is no job")
        screen.next("rdq dlq groups")
        return
    now, short = ask.now(), shortened(each["job_id"] for each in jobs)
    screen.table(
        ["job", "began", "what", "state", "done", "queue"],
        [
            (
                short[each["job_id"]],
                ago(parse_time(each["created_at"], "time"), now),
                each["operation"].removeprefix("dlq."),
                each["state"],
                _progress(each),
                each["queue"],
            )
            for each in jobs
        ],
        stretch=5,
    )
    first = jobs[0]
    screen.next(_goes_on(first) or f"rdq job get {first['job_id']}")


def _goes_on(job: Mapping[str, Any]) -> str | None:
    """What to do about a job that isn't over."""
    verb = {"open": "watch", "paused": "resume"}.get(job["state"])
    return verb and f"rdq job {verb} {job['job_id']}"


def _progress(job: Mapping[str, Any]) -> str:
    of = job["expected"]
    return (
        f"{job['done']:,}" if of is None or job["state"] not in _OPEN else f"{job['done']:,}/{of:,}"
    )


@command(app, "get", asks=True)
def get(screen: Screen, *, job_id: JobId) -> None:
    """Show a bulk operation."""
    ask = Asking(screen)
    job = ask("job.get", job_id=whole_job_id(ask, job_id))
    screen.show(job, lambda: _tell_job(screen, job))


def _tell_job(screen: Screen, job: Mapping[str, Any]) -> None:
    screen.line(
        f"{job['job_id']}  {job['operation'].removeprefix('dlq.')} of {job['queue']}: {job['state']}"
    )
    order = dict(job["order"])
    chosen = ", ".join(f"{name} {value}" for name, value in order["select"].items())
    canary = order.get("canary")
    screen.fields(
        [
            ("what", "all" if chosen == "all True" else chosen),
            ("pace", order["rate"]),
            (
                "canary",
                canary
                and f"{canary['first']} first, {canary['min_success']:g} of them for {canary['wait']}",
            ),
            ("by", f"{job['principal']}{'' if job['verified'] else ' (not verified)'}"),
            ("reason", job["reason"]),
            ("began", screen.moment(job["created_at"])),
            ("ended", screen.moment(job["ended_at"])),
            ("done", f"{_progress(job)}{left(job)}"),
            ("why", job["note"]),
        ]
    )
    screen.next(_goes_on(job) or f"rdq dlq list {job['queue']}")


@command(app, "watch", asks=True)
def watch(screen: Screen, *, job_id: JobId) -> int | None:
    """Look on while others take a job on, to its end. Ctrl-C leaves it as it is."""
    ask = Asking(screen)
    return Following(screen, ask, "done").watch(ask("job.get", job_id=whole_job_id(ask, job_id)))


@command(app, "resume", asks=True, epilog=examples("rdq job resume 01M8PXSZ8GHTD2249VSD1FERQ2"))
def resume(
    screen: Screen,
    *,
    job_id: JobId,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave it to the sweeps, and come back at once.")
    ] = False,
) -> int | None:
    """Go on with a job from here, whoever had it before. Nothing is done twice."""
    ask = Asking(screen)
    job = ask("job.resume", job_id=whole_job_id(ask, job_id))
    following = Following(screen, ask, "done")
    return following.follow({"job_id": job["job_id"]}, detach=detach, take_over=True)


@command(app, "cancel", asks=True)
def cancel(screen: Screen, *, job_id: JobId, reason: Reason = None) -> None:
    """End a job. What it hasn't touched stays as it is."""
    ask = Asking(screen)
    job = ask("job.cancel", job_id=whole_job_id(ask, job_id), reason=reason)
    screen.show(job, lambda: _tell_cancelled(screen, job))


def _tell_cancelled(screen: Screen, job: Mapping[str, Any]) -> None:
    screen.line(
        f"the {job['operation'].removeprefix('dlq.')} is cancelled after {counted(job['done'], 'task')}"
    )
    screen.next(f"rdq dlq list {job['queue']}")


class Following:
    """A job in a terminal: taken on from here, or watched, with a bar; stopped at a checkpoint by
    Ctrl-C.
    """

    def __init__(self, screen: Screen, ask: Asking, words: str) -> None:
        self._screen = screen
        self._ask = ask
        self._words = words
        self._stopping = False

    def follow(
        self, begun: Mapping[str, Any], *, detach: bool = False, take_over: bool = False
    ) -> int | None:
        """Take a job on to its end. The exit code."""
        job_id = begun["job_id"]
        if detach:
            self._detached(job_id)
            return None
        with self._stoppable(), Bar(self._screen) as bar:
            try:
                job = self._ask("job.advance", job_id=job_id, take_over=take_over or None)
                while not self._is_over(job) and not self._stopping:
                    bar.show(
                        job["done"] + job["skipped"] + job["failed"], job["expected"], _doing(job)
                    )
                    self._ask.wait(min((job["due_in_ms"] or 0) / 1000, _LONGEST_WAIT))
                    job = self._ask("job.advance", job_id=job_id)
            except RdqError as failed:
                failed.hint = f"what is done is done; go on with: {self._resume(job_id)}"
                raise
        return self._stopped(job) if self._stopping and not self._is_over(job) else self._told(job)

    def watch(self, job: Document) -> int | None:
        """Look at a job until it is over."""
        with self._stoppable(), Bar(self._screen) as bar:
            while not self._is_over(job) and not self._stopping:
                bar.show(job["done"] + job["skipped"] + job["failed"], job["expected"], _doing(job))
                self._ask.wait(_LONGEST_WAIT)
                job = self._ask("job.get", job_id=job["job_id"])
        return INTERRUPTED if self._stopping and not self._is_over(job) else self._told(job)

    @staticmethod
    def _is_over(job: Mapping[str, Any]) -> bool:
        return job["due_in_ms"] is None

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Ctrl-C ends the loop at the end of the page; again, it ends the command as ever."""
        try:
            before = signal.signal(signal.SIGINT, self._stop)
        except ValueError:  # not the main thread, which alone has signals
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True

    def _resume(self, job_id: str) -> str:
        return self._screen.typed(f"rdq job resume {job_id}")

    def _stopped(self, job: Mapping[str, Any]) -> int | None:
        try:
            job = self._ask("job.pause", job_id=job["job_id"])
        except TaskConflict:  # a sweep has finished it in the meantime
            return self._told(self._ask("job.get", job_id=job["job_id"]))
        note(f"rdq: stopped after {counted(job['done'], 'task')}; the rest stays as it is")
        note(f"     go on with: {self._resume(job['job_id'])}")
        return INTERRUPTED

    def _detached(self, job_id: str) -> None:
        job = self._ask("job.get", job_id=job_id)
        self._screen.show(_shape(job), lambda: self._tell_detached(job))

    def _tell_detached(self, job: Mapping[str, Any]) -> None:
        self._screen.line(f"job {job['job_id']} is left to the sweeps of this installation")
        self._screen.next(f"rdq job watch {job['job_id']}", f"rdq job cancel {job['job_id']}")

    def _told(self, job: Mapping[str, Any]) -> int | None:
        self._screen.show(_shape(job), lambda: self._tell(job))
        code = ended(job, as_json=not self._screen.is_for_people)
        return code or (None if job["state"] == "done" else CONFLICT)

    def _tell(self, job: Mapping[str, Any]) -> None:
        self._screen.line(f"{counted(job['done'], 'task')} {self._words}{left(job)}")
        if job["state"] == "stopped":
            self._screen.line(f"STOPPED: {job['note']}; the rest stays as it is")
            self._screen.next(f"rdq dlq groups {job['queue']}", f"rdq job get {job['job_id']}")
            return
        if job["state"] == "paused":
            self._screen.line("somebody has paused it; the rest stays as it is")
            self._screen.next(f"rdq job resume {job['job_id']}")
            return
        self._screen.next(f"rdq status {job['queue']}")


def _doing(job: Mapping[str, Any]) -> str:
    canary = job["canary"]
    return f"watching the first {canary['sent']}" if canary and canary["watched"] else job["state"]


def _shape(job: Mapping[str, Any]) -> Document:
    counts = {name: job[name] for name in ("selected", "done", "skipped", "failed")}
    return {**counts, "dry_run": False, "job_id": job["job_id"]}
