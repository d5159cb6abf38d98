"""Advances jobs page by page. Commands, sweeps and the ops function may do so concurrently.

    store the page ──► redrive or purge each task ──► store counts, cursor and the next page's time

The invariant: killed at any point, a job continues without treating a task twice or leaving one
out. Each task that is sent back bears the job's id, each write requires the death that was seen,
and a host that takes over a page checks each of its tasks first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.errors import CorruptItem, QueueNotFound, RdqError, TaskConflict, TaskNotFound
from rdq_core.ops.job_steps import Treated, after_page, page_size, record_of
from rdq_core.ops.orders import Operation, Order
from rdq_core.ops.parts import OperatorParts

HELD_FOR: Final = timedelta(seconds=30)
"""How long a page is left to the host that began it."""

_CHECKS_CANARY_EVERY: Final = timedelta(seconds=1)
_READS_AT_ONCE: Final = 100
_MOST_READ: Final = 2_000
_ROUNDING: Final = 1e-9
"""A tolerance for floats: 0.07 * 100 is slightly above 7 and must not round up to 8."""


class Advancer:
    """Advances open jobs, `at_once` tasks of a page in parallel.

    Any number of hosts may advance the same job at the same time.
    """

    def __init__(self, parts: OperatorParts, *, at_once: int) -> None:
        self._jobs = parts.jobs
        self._store = parts.store
        self._redriver = parts.redriver()
        self._audit = parts.audit
        self._clock = parts.clock
        self._ids = parts.ids
        self._at_once = at_once

    def advance(self, job: Job, *, take_over: bool = False) -> Job:
        """Take one step of a job that is due: a page, or a check of its canary.

        Returns the job as it is stored afterwards. With `take_over` it takes over a page that
        another host began, which is safe at any time.
        Raises StoreFailed and Unavailable: the next call repeats the page that was under way.
        """
        now = self._clock.now()
        if job.page and job.is_held(now) and not take_over:
            return job
        if job.state.is_over:
            return self._archived(self._settled(job) if job.page else job)
        if not job.page and (job.state is JobState.PAUSED or job.due_at > now):
            return job
        try:
            return self._step(job)
        except QueueNotFound as error:
            return self._ended(self._stored(job), JobState.STOPPED, error.message)

    def _step(self, job: Job) -> Job:
        order = Order.from_plain(job.operation, job.order)
        if job.page:
            # Another host began the page: check for each task whether that host has treated it.
            held = self._held(job)
            if not self._jobs.replace(job, held):
                return self._stored(job)
            return self._worked_off(held, order, {})
        if job.judged_by is not None and order.canary is not None:
            return self._judged(job, order.canary.min_success, job.judged_by)
        return self._next_page(job, order)

    def _held(self, job: Job, **fields: Any) -> Job:
        """The job held by this host: other hosts leave its page alone for 30 seconds."""
        return job.changed(
            holder=self._ids.nonce(), held_until=self._clock.now() + HELD_FOR, **fields
        )

    def _replaced(self, seen: Job, job: Job) -> Job:
        """The job as it is stored afterwards: `job`, or another host's version of `seen`."""
        return job if self._jobs.replace(seen, job) else self._stored(seen)

    def _stored(self, job: Job) -> Job:
        return self._jobs.get(job.id) or job

    # -- one page ----------------------------------------------------------------------------------

    def _next_page(self, job: Job, order: Order) -> Job:
        entries, cursor, reads_on = self._read(job, order)
        page = tuple(
            Seen(task_id=e.task_id, dead_at=e.dead_at, attempts=e.attempts) for e in entries
        )
        begun = self._held(job, page=page, cursor=cursor, reads_on=reads_on)
        # Stored before the first task is treated: whichever host continues knows what may be done.
        if not self._jobs.replace(job, begun):
            return self._stored(job)
        return self._worked_off(begun, order, {entry.task_id: entry for entry in entries})

    def _read(self, job: Job, order: Order) -> tuple[list[DeadEntry], Any, bool]:
        """The next selected entries, the cursor to continue with, and whether there may be more.

        Reads at most 2,000 entries, so that a page takes a bounded time.
        """
        selected: list[DeadEntry] = []
        cursor, most, budget = job.cursor, page_size(job, order), _MOST_READ
        while job.reads_on and len(selected) < most and budget > 0:
            # Never more than still fit, so that the cursor stands right behind the last entry of
            # the page: the next page begins there.
            page = self._store.dead(
                job.queue, limit=min(most - len(selected), _READS_AT_ONCE), after=cursor
            )
            budget -= _READS_AT_ONCE
            selected += [
                each
                for each in page.items
                if each.dead_at <= job.cutoff and order.selection.admits(each)
            ]
            if page.next is None or any(each.dead_at > job.cutoff for each in page.items):
                return selected, page.next, False
            cursor = page.next
        return selected, cursor, job.reads_on

    def _worked_off(self, job: Job, order: Order, entries: Mapping[str, DeadEntry]) -> Job:
        """Treat and count each task of the page. `entries` is empty for a page taken over."""
        began = self._clock.now()
        treated = self._side_by_side(
            lambda seen: Treated(seen, self._treat(job, order, seen, entries.get(seen.task_id))),
            job.page,
        )
        seen = job
        # A different holder means that another host has taken the page over, and counts it.
        while seen.holder == job.holder:
            ended = after_page(seen, order, treated, began=began, now=self._clock.now())
            if self._jobs.replace(seen, ended):
                return self._archived(ended) if ended.state.is_over else ended
            # An operator has paused or cancelled it meanwhile. If it is unchanged, another host has
            # archived it, and no write to it succeeds any more.
            before, seen = seen, self._stored(job)
            if seen == before:
                break
        return seen

    def _side_by_side(
        self, treat: Callable[[Seen], Treated], page: Sequence[Seen]
    ) -> list[Treated]:
        """Treat the tasks in parallel; results are in order.

        When storage fails for one, those not yet begun are skipped.
        """
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="rdq-job")
        try:
            return list(pool.map(treat, page))
        finally:
            pool.shutdown(cancel_futures=True)

    def _treat(
        self, job: Job, order: Order, seen: Seen, entry: DeadEntry | None
    ) -> RdqError | None:
        """Why a task was not changed; None if this host or the one before applied the operation."""
        is_ours = entry is not None
        try:
            self._do(job, order, entry or self._still_dead(seen))
        except (TaskConflict, TaskNotFound) as refusal:
            return None if not is_ours and self._is_done(job, order, seen) else refusal
        except CorruptItem as unreadable:
            return unreadable
        return None

    def _still_dead(self, seen: Seen) -> DeadEntry:
        entry = self._store.dead_entry(seen.task_id)
        if entry is None or entry.dead_at != seen.dead_at:
            raise TaskConflict(
                f"task {seen.task_id} has changed since it was selected", task_id=seen.task_id
            )
        return entry

    def _do(self, job: Job, order: Order, entry: DeadEntry) -> None:
        if order.operation is Operation.PURGE:
            self._redriver.purge(entry, op_id=job.id)
        else:
            self._redriver.redrive(entry, order.edit, op_id=job.id, force=order.force)

    def _is_done(self, job: Job, order: Order, seen: Seen) -> bool:
        """Whether the host that began the page has treated the task."""
        if order.operation is Operation.PURGE:
            return self._store.get(seen.task_id) is None
        return self._store.bears_mark(seen.task_id, job.id)

    def _settled(self, job: Job) -> Job:
        """Count the treated tasks of the page that was under way when the job ended.

        The other tasks of the page are not changed.
        """
        order = Order.from_plain(job.operation, job.order)
        treated = [Treated(seen, None) for seen in job.page if self._is_done(job, order, seen)]
        now = self._clock.now()
        return self._replaced(job, after_page(job, order, treated, began=now, now=now))

    # -- canary ------------------------------------------------------------------------------------

    def _judged(self, job: Job, min_success: float, until: datetime) -> Job:
        results = [self._succeeded(seen) for seen in job.canary]
        required = math.ceil(min_success * len(results) - _ROUNDING)
        good = sum(result is True for result in results)
        unfinished = sum(result is None for result in results)
        now = self._clock.now()
        is_late = now >= until
        can_succeed = good + (0 if is_late else unfinished) >= required
        if not can_succeed:
            note = f"{good} of the first {len(results)} succeeded, and {required} were required"
            if is_late and unfinished:
                note += f"; {unfinished} had not run in time"
            return self._ended(job, JobState.STOPPED, note)
        if good < required:
            return self._replaced(job, job.changed(due_at=now + _CHECKS_CANARY_EVERY))
        if not job.reads_on:
            return self._ended(job, JobState.DONE)
        return self._replaced(job, job.changed(is_proved=True, judged_by=None, due_at=now))

    def _succeeded(self, seen: Seen) -> bool | None:
        """Whether a task's first attempt after its redrive succeeded; None until that has ended."""
        task = self._store.get(seen.task_id)
        if task is None:
            return False
        new = [attempt for attempt in task.attempts if attempt.attempt_no > seen.attempts]
        if new:
            return new[0].outcome is Outcome.SUCCESS
        return False if task.status.is_terminal else None

    # -- the end -----------------------------------------------------------------------------------

    def _ended(self, job: Job, state: JobState, note: str | None = None) -> Job:
        over = job.changed(state=state, ended_at=self._clock.now(), note=note)
        return self._archived(over) if self._jobs.replace(job, over) else self._stored(job)

    def _archived(self, job: Job) -> Job:
        """Moves a job from the open ones to the ended ones, after the audit record of its end.

        The record is first: killed in between, the job is still open, and the next host writes the
        same record again, which changes nothing.
        """
        if job.page:
            return job
        self._audit.append(record_of(job))
        self._jobs.file(job)
        return job
