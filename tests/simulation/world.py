"""One run: its processes, what happens to them, and when it is over.

First there is trouble, for as long as the plan says. Then it stops, and everything that is due has
to be done within its bound: a task that waits longer was lost or left behind.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from rdq_core.engine.events import Quiet
from rdq_core.engine.ports import AuditLog, JobStore, Reservations
from rdq_core.errors import CorruptItem, LeaseLost, RdqError, StoreFailed
from rdq_core.runtime.wiring import Parts
from rdq_core.stores.dynamodb.audit import DynamoAudit
from rdq_core.stores.dynamodb.coordination import DynamoRateLimiter, DynamoReservations
from rdq_core.stores.dynamodb.jobs import DynamoJobs
from rdq_core.stores.dynamodb.schema import Tables, definitions
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.memory_control import (
    MemoryAudit,
    MemoryCursorKey,
    MemoryJobs,
    MemoryReservations,
)
from tests.simulation import actors, closing, jobs, kicking
from tests.simulation.history import EARLY, TASKS, History
from tests.simulation.network import LATEST, Client, Flight, Network
from tests.simulation.plan import Plan
from tests.simulation.process import Names, Process
from tests.simulation.queues import Queues
from tests.simulation.rows import TERMINAL, Row
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.threads import under
from tests.simulation.timeline import Timeline
from tests.simulation.verdict import Broken, require
from tests.simulation.witness import StoreCall, Witness
from tests.support.fake_dynamodb import Change, Database

TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")
BOUND: Final = 90
"""Seconds after which nothing that is due may still wait, once all are well."""
_LOOK: Final = 5 * SECOND


class World:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dice = random.Random(f"{plan.seed}/world")
        self.scheduler = Scheduler(plan.seed)
        self.timeline = Timeline(self.scheduler)
        exact = not plan.skew and not plan.steps
        self.history = History(
            self.scheduler, self.timeline, plan.budgets, early=0.01 if exact else EARLY
        )
        self.names = Names()
        self.is_calm = False
        self._employed = 0
        self.ids: list[str] = []
        self._calm_since = self._chaos_ends = self._outage_ends = 0
        self._lag_dice = random.Random(f"{plan.seed}/lag")
        self.database = Database(
            now=lambda: self.scheduler.now / SECOND, lag=self._lag, watch=self._watch
        )
        self.history.database = self.database
        self.history.is_audited = plan.audited
        self.history.errands = jobs.Errands(self.rows, lag=plan.lag)
        self.stream: list[dict[str, Any]] = []
        self.audited: set[str] = set()
        self.wakeups = kicking.Wakeups(self)
        self.network = Network(plan, self.scheduler, self.database, self.timeline, self._arrives)
        self.processes: list[Process] = []
        self._budget = plan.budgets[0]
        self.queues = Queues(plan, lambda: self._budget)
        for definition in definitions(TABLES).values():
            self.database.create_table(**definition)

    def run(self) -> None:
        """Run it to its end. Raises Broken for a promise that was."""
        with under(self.scheduler):
            self._set_the_stage()
            self.scheduler.run()
        closing.check(self)

    # -- who takes part ----------------------------------------------------------------------------

    def _set_the_stage(self) -> None:
        plan = self.plan
        for number in range(plan.workers):
            self.employ(f"worker-{number}", actors.worker, forever=True)
        for number in range(plan.submitters):
            self.employ(f"submitter-{number}", actors.submitter(number))
        for number in range(plan.operators):
            self.employ(f"operator-{number}", actors.operator)
        for number in range(plan.cancellers):
            self.employ(f"canceller-{number}", actors.canceller)
        for number in range(plan.forgetters):
            self.employ(f"forgetter-{number}", actors.forgetter)
        for number in range(plan.cleaners):
            self.employ(f"cleaner-{number}", actors.cleaner)
        for number in range(plan.clerks):
            self.employ(f"clerk-{number}", jobs.clerk)
        for number in range(plan.kicks):
            self.employ(f"kick-{number}", kicking.kick, forever=True)
        for number in range(plan.odd_rows):
            actors.put_odd_row(self, number)
        self._chaos_ends = plan.chaos * SECOND
        self._set_traps(self._chaos_ends)
        self.scheduler.at(self._chaos_ends, self._end_of_chaos)

    def _set_traps(self, chaos: int) -> None:
        plan = self.plan
        for _ in range(plan.freezes):
            self._some_time(chaos, self._freeze_a_process)
        for _ in range(plan.steps):
            self._some_time(chaos, self._step_a_clock)
        for span in plan.leaps:
            self._some_time(chaos, partial(self._leap, span))
        if len(plan.budgets) > 1:
            self._some_time(chaos, self._change_budget)

    def _some_time(self, within: int, call: Callable[[], object]) -> None:
        self.scheduler.at(int(self.dice.random() * within), call)

    def employ(
        self,
        name: str,
        work: Callable[["World", Process], object],
        *,
        forever: bool = False,
        once: bool = False,
    ) -> None:
        """Start a process for this work. When it dies, another one takes over, unless it is done
        `once`; a worker's goes on until the end.
        """
        again = partial(self.employ, name, work, forever=forever)
        if self.scheduler.now < self._outage_ends:
            self.scheduler.at(self._outage_ends, again)
            return
        skew = round(self.dice.uniform(-1, 1) * self.plan.skew * SECOND)
        self._employed += 1
        process = Process(
            f"{name}.{self._employed}", self.scheduler, self.plan.seed, self.names, skew=skew
        )
        process.client = Client(self.network, process)
        process.goes_on = forever
        self.processes.append(process)

        def life() -> None:
            try:
                work(self, process)
                is_done = not forever
            except BaseException:
                is_done = False
                raise
            finally:
                self.processes.remove(process)
                if not is_done and not once:
                    self.scheduler.at(
                        self.scheduler.now + round((0.1 + 3 * self.dice.random()) * SECOND), again
                    )

        self.scheduler.spawn(process.home, life, process.name)

    def parts(self, process: Process) -> Parts:
        """rdq, as this process has it."""
        queues: Any = self.queues
        store: Any = DynamoTaskStore(
            process.client,
            TABLES,
            clock=process.clock,
            ids=process.ids,
            jitter=process,
            sleeper=process,
            shards_ever=lambda queue: self.queues.settings(queue).shards_ever,
        )
        return Parts(
            store=Witness(store, process, self.scheduler, self.timeline, self._heard),
            queues=queues,
            reservations=self._reservations(process),
            limiter=DynamoRateLimiter(
                process.client, TABLES, ids=process.ids, jitter=process, sleeper=process
            ),
            audit=self._audit(process),
            jobs=self._jobs(process),
            cursor_key=MemoryCursorKey(b"a key that nobody knows"),
            clock=process.clock,
            ids=process.ids,
            jitter=process,
            idle=process,
            busy=process,
            events=Quiet(),
            on_error=lambda error, where: self._on_error(process, error, where),
        )

    def _audit(self, process: Process) -> AuditLog:
        if not self.plan.audited:
            return MemoryAudit()
        return DynamoAudit(process.client, TABLES, jitter=process, sleeper=process)

    def _jobs(self, process: Process) -> JobStore:
        if not self.plan.clerks:
            return MemoryJobs()
        return DynamoJobs(process.client, TABLES, ids=process.ids, jitter=process, sleeper=process)

    def _reservations(self, process: Process) -> Reservations:
        if not self.plan.kicks:
            return MemoryReservations()
        return DynamoReservations(
            process.client, TABLES, ids=process.ids, jitter=process, sleeper=process
        )

    def _heard(self, call: StoreCall, answer: Any, error: RdqError | None) -> None:
        with self.ending_the_run():
            self.history.heard(call, answer, error)

    @contextlib.contextmanager
    def ending_the_run(self) -> Iterator[None]:
        """Let a broken promise end the run at once, even if a caller would catch it."""
        try:
            yield
        except Broken as broken:
            self.scheduler.finish(broken)
            raise

    def _on_error(self, process: Process, error: BaseException, where: str) -> None:
        if isinstance(error, Broken):
            return
        if isinstance(error, CorruptItem):
            row = self.history.row(error.task_id or "")
            require("nothing becomes unreadable", row is None or row.version != 1, error)
            return
        self.timeline.note(process.name, f"{where}: {error!r}")
        if not isinstance(error, StoreFailed | LeaseLost):
            self.scheduler.finish(error)

    # -- what happens to them ----------------------------------------------------------------------

    def _freeze_a_process(self) -> None:
        if self.processes:
            self._any_process().freeze(
                self.dice.choice((0.5, 5.0, 30.0)) * (0.5 + self.dice.random())
            )

    def _step_a_clock(self) -> None:
        if not self.processes:
            return
        process = self._any_process()
        process.skew += round(self.dice.uniform(-1, 1) * self.dice.choice((2, 600)) * SECOND)
        self.timeline.note(
            process.name, f"its clock is set, now off by {process.skew / SECOND:.1f} s"
        )

    def _any_process(self) -> Process:
        return self.dice.choice(self.processes)

    def _change_budget(self) -> None:
        self._budget = self.plan.budgets[-1]
        self.timeline.note("owner", f"max_attempts is {self._budget}")

    def _leap(self, seconds: float) -> None:
        """An outage of all processes at once."""
        self.timeline.note("world", f"everybody stands still for {seconds / 3600:.1f} h")
        for process in self.processes:
            if self.dice.random() < 0.3:
                self.scheduler.kill(process.home)
            else:
                # A machine that is suspended for weeks does not resume.
                process.home.clock_stops = False
                process.freeze(seconds)
        self._outage_ends = max(self._outage_ends, self.scheduler.now + round(seconds * SECOND))
        self._chaos_ends = max(self._chaos_ends, self._outage_ends + 10 * SECOND)

    def _arrives(self, flight: Flight) -> bool:
        """Whether a request is carried out. One is not: a submit that was stored already, and
        arrives once more when its task is gone again. It would bring the same life back, which is
        known, and not prevented.
        """
        self.history.flight = flight
        item = flight.request.get("Item", {})
        if item.get("kind") != {"S": "T"}:
            return True
        task_id, life = item["task_id"]["S"], item["lf"]["S"]
        row = self.history.row(task_id)
        comes_back = (task_id, life) in self.history.lives and (row is None or row.life != life)
        if comes_back:
            self.timeline.note(
                "network", f"task {task_id[-6:]} would come back: its late submit is dropped"
            )
        return not comes_back

    def _watch(self, changes: Sequence[Change]) -> None:
        self.history.watch(changes)
        if self.plan.kicks:
            self.wakeups.watch(changes)
        for change in changes:
            if self.plan.cleaners and change.key[1] == "T" and change.before is not None:
                self.stream.append(
                    {"dynamodb": {"OldImage": change.before, "NewImage": change.after}}
                )
            if change.after is not None and "expires_at" in change.after:
                self._will_expire(change)

    def _will_expire(self, change: Change) -> None:
        """Time to live removes a body at its earliest, other things at any moment within two days
        after their end.
        """
        assert change.after is not None
        ends_at = int(change.after["expires_at"]["N"])
        is_body = change.key[1].startswith("B#") or change.key[0].startswith("ref#")
        after = 0.0 if is_body else self.dice.choice((0.0, 3600.0, 172800.0)) * self.dice.random()
        moment = self.scheduler.now + round(
            (max(ends_at - self.history.seconds, 0) + after + 0.001) * SECOND
        )
        self.scheduler.at(moment, lambda: self._expire(change))

    def _expire(self, change: Change) -> None:
        item = self.database.tables[change.table].get(change.key)
        if (
            item is not None
            and "expires_at" in item
            and int(item["expires_at"]["N"]) <= self.history.seconds
        ):
            self.history.flight = None
            self.database.remove(change.table, change.key)

    def _lag(self) -> float:
        if self.is_calm or not self.plan.lag or self._lag_dice.random() < 0.5:
            return 0.0
        return self._lag_dice.random() * self.plan.lag

    # -- the end -----------------------------------------------------------------------------------

    def _end_of_chaos(self) -> None:
        if self.scheduler.now < self._chaos_ends:
            self.scheduler.at(self._chaos_ends, self._end_of_chaos)
            return
        self.is_calm = self.network.is_calm = True
        self._calm_since = self.scheduler.now + LATEST
        self.timeline.note("world", "trouble is over")
        self._look()

    def _look(self) -> None:
        """Once all are well: nothing waits too long, and when nothing is left to do the run is
        over.
        """
        for process in self.processes:
            self.scheduler.thaw(process.home)
        waiting = [row for row in self.rows() if row.status not in TERMINAL and row.version == 1]
        for row in waiting:
            since = max(
                (row.due_at or 0) / 1000 - self.history.seconds + self.scheduler.now / SECOND,
                self._calm_since / SECOND,
            )
            late = self.scheduler.now / SECOND - since
            require(
                "what is due is done within its bound",
                late < BOUND,
                f"task {row.task_id} is {late:.0f} s late",
            )
        self.wakeups.schedule()
        others_are_done = all(process.goes_on for process in self.processes)
        if others_are_done and not waiting:
            self.scheduler.finish()
            return
        may_skip = others_are_done and self.scheduler.now > self._calm_since
        self.scheduler.at(
            self.scheduler.now + (self._until_next(waiting) if may_skip else _LOOK), self._look
        )

    def _until_next(self, waiting: list[Row]) -> int:
        """Nobody needs to look at a store in which nothing is due for days: all stand still
        meanwhile.
        """
        next_due = (
            min(((row.due_at or 0) / 1000 for row in waiting), default=0.0) - self.history.seconds
        )
        if next_due <= 60:
            return _LOOK
        span = round((next_due - 5) * SECOND)
        self._outage_ends = self.scheduler.now + span
        for process in self.processes:
            self.scheduler.freeze(process.home, self._outage_ends)
        return span

    @property
    def counts(self) -> Counter[str]:
        """What the run was put through."""
        return Counter(
            requests=self.network.requests,
            troubles=self.network.troubles,
            writes=self.history.writes,
            claims=len(self.history.claims),
            processes=self._employed,
            jobs=self.history.errands.ended,
            kicked=self.wakeups.started,
            excused=self.wakeups.excuses,
        )

    def rows(self) -> list[Row]:
        """All state rows."""
        return [
            Row(item) for item in self.database.tables[TASKS].every() if item["kind"]["S"] == "T"
        ]
