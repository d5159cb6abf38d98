"""Bulk jobs: clerks start them, clerks and sweeps advance them, and each dead task is treated once
by each.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from rdq_core.domain.job import Job, JobState
from rdq_core.domain.times import to_millis
from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.errors import QueueNotFound, StoreFailed, TaskConflict, TaskNotFound
from rdq_core.ops.job_control import JobControl
from rdq_core.ops.orders import Canary, Operation, Order
from rdq_core.ops.selection import Selection
from tests.simulation.process import Process
from tests.simulation.queues import QUEUE
from tests.simulation.rows import Row
from tests.simulation.verdict import require
from tests.simulation.witness import StoreCall
from tests.support.fake_dynamodb import Change

if TYPE_CHECKING:
    from tests.simulation.world import World

_OPEN: Final = "jobs#open"
_ENDED: Final = "jobs#done"
_MARGIN: Final = 300.0
_ENDS_WITHIN: Final = 300
_SOON: Final = timedelta(seconds=2)


class Errands:
    """What becomes of every job of a run."""

    def __init__(self, rows: Callable[[], Iterable[Row]], *, lag: float) -> None:
        self._rows = rows
        self._lag = lag
        self._died_at: dict[str, float] = {}
        self._meant: dict[str, dict[str, int]] = {}
        self._cutoffs: dict[str, int] = {}
        self._treated: set[tuple[str, str]] = set()
        self.ended = 0

    def died(self, row: Row, seconds: float) -> None:
        """A task has died. It is listed as soon as the index has caught up."""
        self._died_at[row.task_id] = seconds

    def changed(self, change: Change, seconds: float) -> None:
        """Something was written to the control table."""
        partition, _ = change.key
        if change.after is None or partition not in (_OPEN, _ENDED):
            return
        job = json.loads(change.after["job"]["S"])
        if partition == _ENDED:
            self._check_end(job, seconds)
        elif change.before is not None:
            _check_step(json.loads(change.before["job"]["S"]), job)
        else:
            self._begin(job, seconds)

    def _begin(self, job: dict[str, Any], seconds: float) -> None:
        require("a job begins once", job["id"] not in self._meant, job["id"])
        self._cutoffs[job["id"]] = job["cutoff"]
        self._meant[job["id"]] = {
            row.task_id: row.completed_at or 0
            for row in self._dead(seconds + _MARGIN)
            if (row.completed_at or 0) <= job["cutoff"]
            and self._died_at[row.task_id] + self._lag <= seconds
        }

    def _check_end(self, job: dict[str, Any], seconds: float) -> None:
        self.ended += 1
        if job["state"] != "done":
            return
        left = {row.task_id: row.completed_at for row in self._dead(seconds + _MARGIN)}
        meant = self._meant[job["id"]].items()
        forgotten = [task_id for task_id, dead_at in meant if left.get(task_id) == dead_at]
        require("a job leaves nothing out", not forgotten, f"{job['id']}: {forgotten}")
        done = {task_id for job_id, task_id in self._treated if job_id == job["id"]}
        if job["operation"] == Operation.REDRIVE:
            # What somebody else has sent back or stopped since, or removed, doesn't bear the job's
            # mark any more.
            least = sum(row.task_id in done and row.op_id == job["id"] for row in self._rows())
            about = f"{job['id']}: {job['done']}, {least} to {len(done)}"
            require(
                "a job counts what it did, and no more", least <= job["done"] <= len(done), about
            )
        require(
            "a job counts each task once",
            job["selected"] == job["done"] + job["skipped"] + job["failed"],
            job,
        )

    def treated(self, call: StoreCall) -> None:
        """A dead task was sent back, or removed."""
        job_id = call.options["op_id"]
        if job_id in self._meant:
            dead_at = to_millis(call.given[0].dead_at)
            require(
                "a job leaves alone what died after it had begun",
                dead_at <= self._cutoffs[job_id],
                call,
            )
            require(
                "a job treats each task once", (job_id, call.task_id) not in self._treated, call
            )
            self._treated.add((job_id, call.task_id))

    def _dead(self, seconds: float) -> Iterator[Row]:
        return (
            row
            for row in self._rows()
            if row.version == 1 and row.status == "DEAD" and not row.is_gone(seconds)
        )


def _check_step(before: dict[str, Any], job: dict[str, Any]) -> None:
    require(
        "each step of a job follows the one before",
        job["revision"] == before["revision"] + 1,
        job["id"],
    )
    counted = all(job[name] >= before[name] for name in ("selected", "done", "skipped", "failed"))
    require("a job never takes back what it has counted", counted, job["id"])
    is_settled = job["state"] == before["state"] and before["page"] and not job["page"]
    is_fine = before["state"] in ("open", "paused") or is_settled
    require("a job that is over stays so, and only counts its last page", is_fine, job["id"])


def clerk(world: "World", process: Process) -> None:
    """Starts a job when there is none, and takes those on that there are, also pages that others
    have begun.
    """
    parts = world.parts(process)
    control, auditor = JobControl(parts), parts.auditor(Principal("clerk"))
    calm_since = None
    while True:
        process.sleep(0.2 + process.dice.random() * 3)
        with contextlib.suppress(StoreFailed, TaskConflict, TaskNotFound, QueueNotFound):
            jobs = parts.jobs.open_jobs()
            if world.is_calm:
                calm_since = calm_since or world.history.seconds
                late = world.history.seconds - calm_since
                require("a job comes to its end", late < _ENDS_WITHIN, f"{jobs} after {late:.0f} s")
                if not jobs:
                    return
            elif not jobs and process.dice.random() < 0.4:
                control.start(QUEUE, _order(process), auditor)
            for job in jobs:
                control.advance(job.id, take_over=process.dice.random() < 0.3)
                _turn(control, job, auditor, 1.0 if world.is_calm else process.dice.random())


def _turn(control: JobControl, job: Job, auditor: Auditor, chance: float) -> None:
    if chance < 0.05:
        control.cancel(job.id, auditor)
    elif chance < 0.1:
        control.pause(job.id)
    elif job.state is JobState.PAUSED:
        control.resume(job.id, auditor)


def _order(process: Process) -> Order:
    is_purge = process.dice.random() < 0.2
    canary = (
        None
        if is_purge or process.dice.random() < 0.7
        else Canary(first=1, wait=_SOON, min_success=0.0)
    )
    return Order(
        operation=Operation.PURGE if is_purge else Operation.REDRIVE,
        selection=Selection(all=True),
        force=not is_purge,
        rate=process.dice.choice(("1/s", "2/s", "50/s")),
        canary=canary,
    )
