"""What advances a bulk operation, page by page: a command line, a sweep or the ops function,
whoever has time.

    write the page down ──► redrive or purge each ──► count, keep the cursor, say when the next page is due

The invariant: killed at any point, a job goes on without doing anything twice or leaving anything
out. Each task that is sent back bears the job's id, each write requires the death that was seen,
and a page that somebody else began is looked through task by task.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.job import Job, JobState, Seen
from rdq_core.engine.ports import AuditLog, Clock, IdSource, JobStore, TaskStore
from rdq_core.engine.redrive import Redriver
from rdq_core.errors import CorruptItem, QueueNotFound, RdqError, TaskConflict, TaskNotFound
from rdq_core.ops.job_steps import Treated, after_page, page_size, record_of
from rdq_core.ops.orders import Operation, Order

HELD_FOR: Final = timedelta(seconds=30)
"""How long a page is left to whoever began it."""

_LOOKS_AT_CANARY_EVERY: Final = timedelta(seconds=1)
_READS_AT_ONCE: Final = 100
_MOST_READ: Final = 2_000
_ROUNDING: Final = 1e-9
"""Of floats: 0.07 of a hundred are seven, not a bit more."""


class Advancer:
    """Takes open jobs on. Any number of them may, at the same time and on different machines.

    It treats `at_once` tasks of a page side by side.
    """

    def __init__(
        self,
        jobs: JobStore,
        store: TaskStore,
        redriver: Redriver,
        audit: AuditLog,
        *,
        clock: Clock,
        ids: IdSource,
        at_once: int = 1,
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._redriver = redriver
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._at_once = at_once

    def advance(self, job: Job, *, take_over: bool = False) -> Job:
        """One step of a job whose time has come: a page, or a look at its canary. The job as it is
        then.

        With `take_over` a page is not left to whoever began it, which is safe at any time. Raises
        StoreFailed and Unavailable: the page that is under way then is repeated by whoever comes
        next.
        """
        now = self._clock.now()
        if job.page and job.is_held(now) and not take_over:
            return job
        if job.state.is_over:
            return self._filed(self._settled(job) if job.page else job)
        if not job.page and (job.state is JobState.PAUSED or job.due_at > now):
            return job
        try:
            return self._stepped(job)
        except QueueNotFound as gone:
            return self._ended(self._present(job), JobState.STOPPED, gone.message)

    def _stepped(self, job: Job) -> Job:
        order = Order.from_plain(job.operation, job.order)
        if job.page:
            held = self._in_our_hands(job)
            return (
                self._worked_off(held, order, {})
                if self._jobs.replace(job, held)
                else self._present(job)
            )
        if job.judged_by is not None and order.canary is not None:
            return self._judged(job, order.canary.min_success, job.judged_by)
        return self._next_page(job, order)

    def _in_our_hands(self, job: Job, **fields: Any) -> Job:
        return job.changed(
            holder=self._ids.nonce(), held_until=self._clock.now() + HELD_FOR, **fields
        )

    def _put(self, seen: Job, job: Job) -> Job:
        """The job as it is stored then: as we would have it, or as somebody else has made it in the
        meantime.
        """
        return job if self._jobs.replace(seen, job) else self._present(seen)

    def _present(self, job: Job) -> Job:
        return self._jobs.get(job.id) or job

    # -- one page ----------------------------------------------------------------------------------

    def _next_page(self, job: Job, order: Order) -> Job:
        entries, cursor, reads_on = self._read(job, order)
        page = tuple(
            Seen(task_id=e.task_id, dead_at=e.dead_at, attempts=e.attempts) for e in entries
        )
        begun = self._in_our_hands(job, page=page, cursor=cursor, reads_on=reads_on)
        if not self._jobs.replace(job, begun):
            return self._present(job)
        return self._worked_off(begun, order, {entry.task_id: entry for entry in entries})

    def _read(self, job: Job, order: Order) -> tuple[list[DeadEntry], Any, bool]:
        """The next entries that are meant, where to go on, and whether there may be more. Reads so
        much and no more.
        """
        found: list[DeadEntry] = []
        cursor, most, budget = job.cursor, page_size(job, order), _MOST_READ
        while job.reads_on and len(found) < most and budget > 0:
            # Never more than still fit, so that the cursor stands right behind the last entry of
            # the page.
            page = self._store.dead(
                job.queue, limit=min(most - len(found), _READS_AT_ONCE), after=cursor
            )
            budget -= _READS_AT_ONCE
            found += [
                each
                for each in page.items
                if each.dead_at <= job.cutoff and order.selection.filters.admit(each)
            ]
            if page.next is None or any(each.dead_at > job.cutoff for each in page.items):
                return found, page.next, False
            cursor = page.next
        return found, cursor, job.reads_on

    def _worked_off(self, job: Job, order: Order, entries: Mapping[str, DeadEntry]) -> Job:
        """Treat each task of the page, and count it. Of a page that somebody else began there are
        no `entries`.
        """
        began = self._clock.now()
        treated = self._side_by_side(
            lambda seen: Treated(seen, self._treat(job, order, seen, entries.get(seen.task_id))),
            job.page,
        )
        seen = job
        while seen.holder == job.holder:  # else somebody has taken the page over, and counts it
            ended = after_page(seen, order, treated, began=began, now=self._clock.now())
            if self._jobs.replace(seen, ended):
                return self._filed(ended) if ended.state.is_over else ended
            before, seen = seen, self._present(job)  # a person has paused or cancelled it meanwhile
            if seen == before:
                break  # and somebody has filed it: nothing changes it any more
        return seen

    def _side_by_side(
        self, treat: Callable[[Seen], Treated], page: Sequence[Seen]
    ) -> list[Treated]:
        """Each task's outcome, in their order. When storage fails for one, those that haven't begun
        are left alone.
        """
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="rdq-job")
        try:
            return list(pool.map(treat, page))
        finally:
            pool.shutdown(cancel_futures=True)

    def _treat(
        self, job: Job, order: Order, seen: Seen, entry: DeadEntry | None
    ) -> RdqError | None:
        """Why a task was left as it is; None when what was asked for is done, by us or by whoever
        began the page.
        """
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
                f"task {seen.task_id} is not dead any more as it was seen", task_id=seen.task_id
            )
        return entry

    def _do(self, job: Job, order: Order, entry: DeadEntry) -> None:
        if order.operation is Operation.PURGE:
            self._redriver.purge(entry, op_id=job.id)
        else:
            self._redriver.redrive(entry, order.edit, op_id=job.id, force=order.force)

    def _is_done(self, job: Job, order: Order, seen: Seen) -> bool:
        """Whether whoever began the page has treated the task."""
        if order.operation is Operation.PURGE:
            return self._store.get(seen.task_id) is None
        return self._store.bears_mark(seen.task_id, job.id)

    def _settled(self, job: Job) -> Job:
        """A page that was left behind when the job ended: what was done of it is counted, and
        nothing more is done.
        """
        order = Order.from_plain(job.operation, job.order)
        treated = [Treated(seen, None) for seen in job.page if self._is_done(job, order, seen)]
        now = self._clock.now()
        return self._put(job, after_page(job, order, treated, began=now, now=now))

    # -- canary ------------------------------------------------------------------------------------

    def _judged(self, job: Job, min_success: float, until: datetime) -> Job:
        verdicts = [self._succeeded(seen) for seen in job.canary]
        wanted = math.ceil(min_success * len(verdicts) - _ROUNDING)
        good = sum(verdict is True for verdict in verdicts)
        is_late = self._clock.now() >= until
        unended = sum(verdict is None for verdict in verdicts)
        hopeless = good + (0 if is_late else unended) < wanted
        if hopeless:
            told = f"{good} of the first {len(verdicts)} succeeded, and {wanted} were to"
            if is_late and unended:
                told += f"; {unended} had not run when the time was up"
            return self._ended(job, JobState.STOPPED, told)
        now = self._clock.now()
        if good < wanted:
            return self._put(job, job.changed(due_at=now + _LOOKS_AT_CANARY_EVERY))
        if not job.reads_on:
            return self._ended(job, JobState.DONE)
        return self._put(job, job.changed(is_proved=True, judged_by=None, due_at=now))

    def _succeeded(self, seen: Seen) -> bool | None:
        """How a task's first attempt after it was sent back ended; None while there is none."""
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
        return self._filed(over) if self._jobs.replace(job, over) else self._present(job)

    def _filed(self, job: Job) -> Job:
        """On the audit log, then away from the open jobs. Whoever repeats it writes the same record
        again.
        """
        if job.page:
            return job
        self._audit.append(record_of(job))
        self._jobs.file(job)
        return job
