"""The invariants, checked at every write and at every answer of a store's verb.

They read what is stored with code of their own, and not with the product's, so that a mistake of
the product can't hide itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rdq_core.domain.times import to_millis
from rdq_core.errors import LeaseLost, RdqError, StoreFailed, TaskConflict, TaskNotFound
from tests.simulation import auditing
from tests.simulation.arrows import ARROWS, Arrow
from tests.simulation.forgetting import Forgotten, is_forgotten, task_of
from tests.simulation.jobs import Errands
from tests.simulation.network import Flight
from tests.simulation.process import START
from tests.simulation.records import Records
from tests.simulation.rows import TERMINAL, Row, maybe
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.timeline import Timeline
from tests.simulation.verdict import Broken, require
from tests.simulation.witness import StoreCall
from tests.support.fake_dynamodb import Change, Database

TASKS: Final = "rdq-tasks"
DLQ: Final = "rdq-dlq"
CONTROL: Final = "rdq-control"
EARLY: Final = 2.1
"""Seconds by which the storage clocks of two hosts may differ, and a bit for a request's way."""
_EPOCH: Final = START.timestamp()


class History:
    """Everything that happened to tasks in one run."""

    def __init__(
        self, scheduler: Scheduler, timeline: Timeline, budgets: Sequence[int], *, early: float
    ) -> None:
        self.database: Database
        self.flight: Flight | None = None
        self.lives: dict[tuple[str, str], Any] = {}
        self.claims: dict[str, tuple[str, int, bytes]] = {}
        self.returned: set[tuple[str, int]] = set()
        self.gone: set[str] = set()
        self.writes = 0
        self._scheduler = scheduler
        self._timeline = timeline
        self._budgets = budgets
        self._early = early
        self._last_lives: dict[str, tuple[Row, float]] = {}
        self._holders: dict[tuple[str, str], str] = {}
        self.records = Records()
        self.forgotten = Forgotten()
        self.is_audited = False
        self.errands: Errands

    @property
    def seconds(self) -> float:
        """True time."""
        return _EPOCH + self._scheduler.now / SECOND

    def row(self, task_id: str) -> Row | None:
        """The state row as it is now."""
        return maybe(self.database.tables[TASKS].get((task_id, "T")))

    # -- every write -------------------------------------------------------------------------------

    def watch(self, changes: Sequence[Change]) -> None:
        """A write has been made, whole."""
        self.writes += 1
        call = self.flight.call if self.flight is not None else None
        for change in changes:
            self._tell(change, call)
            if change.table == TASKS and change.key[1] == "T":
                self._row_changed(maybe(change.before), maybe(change.after), call)
            elif change.table in (TASKS, DLQ):
                self.records.changed(change, self._living(change.key[0]))
            else:
                self._beside_changed(change)
        for task_id in dict.fromkeys(
            change.key[0] for change in changes if change.table in (TASKS, DLQ)
        ):
            self._check_entry(task_id)

    def _beside_changed(self, change: Change) -> None:
        if change.table == auditing.AUDIT:
            auditing.check_change(change)
        elif change.table == CONTROL:
            self.errands.changed(change, self.seconds)
        task_id = task_of(change)
        if task_id is not None:
            self.forgotten.check_reference(change, self._living(task_id))

    def _living(self, task_id: str) -> Row | None:
        """The row of a task that can be read and run: neither over nor forgotten."""
        row = self.row(task_id)
        is_none = row is None or row.is_gone(self.seconds) or is_forgotten(self.database, row)
        return None if is_none else row

    def _tell(self, change: Change, call: StoreCall | None) -> None:
        who = "time to live" if self.flight is None else self.flight.process.name
        what = "removed" if change.after is None else "put" if change.before is None else "changed"
        row = maybe(change.after) if change.key[1] == "T" else None
        state = (
            ""
            if row is None
            else f" {row.status} fence {row.fence % 100000} h {row.history_length} due {row.due_at}"
        )
        why = "" if call is None else f" by {call.verb}"
        what_of = (
            f"{change.key[0]}/{change.key[1][-6:]}"
            if change.table == CONTROL
            else _named(change.key)
        )
        self._timeline.note(who, f"{what} {change.table[4:]} {what_of}{state}{why}")

    def _row_changed(self, before: Row | None, after: Row | None, call: StoreCall | None) -> None:
        if after is None:
            self._removed(before, call)
        elif before is None or before.life != after.life:
            self._submitted(before, after, call)
        else:
            self._moved(before, after, call)
        if (
            after is not None
            and after.status == "DEAD"
            and (before is None or before.status != "DEAD")
        ):
            self.errands.died(after, self.seconds)
        if call is not None:
            require("what a verb denies, it doesn't do afterwards", not _is_final(call.error), call)
            call.committed.append((before, after))
        self._check_key(before, after)

    def _removed(self, before: Row | None, call: StoreCall | None) -> None:
        assert before is not None
        if call is None:
            require(
                "nothing is removed before its time", before.is_gone(self.seconds), before.task_id
            )
            require("only what has ended is removed", before.status in TERMINAL, before.task_id)
        elif call.verb == "purge":
            require("a purge sees the death it purges", before.completed_at == _dead_at(call), call)
            require("only what is dead is purged", before.status == "DEAD", call)
            self._check_audit(call)
            self.errands.treated(call)
        else:
            self.forgotten.check_removal(self.database, before, call)
        self.gone.add(before.task_id)
        self._last_lives[before.task_id] = (before, self.seconds)

    def _submitted(self, before: Row | None, after: Row, call: StoreCall | None) -> None:
        if call is None or call.verb != "submit":
            raise Broken("a row appears by a submit", f"{call} made one of task {after.task_id}")
        if before is not None:
            require(
                "a submit never replaces a living task", before.is_gone(self.seconds + EARLY), call
            )
            self._last_lives[before.task_id] = (before, self.seconds)
        if after.task_id in self._last_lives:
            self._check_next_life(*self._last_lives[after.task_id], after, call)
        self.lives[after.task_id, after.life] = call.given[0].payload
        if not is_forgotten(self.database, after):
            self.records.begin(self.database, after)
        self._check_named(after)

    def _check_next_life(self, last: Row, gone_at: float, row: Row, call: StoreCall) -> None:
        """A submit that began before the last life did, and went on until that was removed, can't
        know of its fence.
        """
        if self.seconds - gone_at > 2 * EARLY and row.created_at > last.created_at:
            require("a fence only grows, over lives too", row.fence > last.fence, call)

    def _moved(self, before: Row, after: Row, call: StoreCall | None) -> None:
        if call is None or call.verb not in ARROWS:
            raise Broken(
                "a row changes by a verb of its machine", f"{call} changed task {after.task_id}"
            )
        require("a row of a newer version is not touched", before.version == 1, call)
        arrow = ARROWS[call.verb]
        self._check_arrow(arrow, before, after, call)
        self._check_shape(after, call)
        self.records.append(self.database, before, after, call)
        self._check_named(after)
        if call.verb in ("claim", "claim_keyed", "reclaim"):
            self._claimed(before, after, call)
        elif call.verb == "complete":
            require(
                "a success is that of a run that returned",
                (after.task_id, before.fence) in self.returned,
                call,
            )
        elif call.verb == "redrive":
            self._redrove(before, after, call)
        if after.status in TERMINAL or call.verb == "reschedule":
            self._check_budget(before, after, call)

    def _check_arrow(self, arrow: Arrow, before: Row, after: Row, call: StoreCall) -> None:
        require(
            f"{call.verb} goes from {'/'.join(sorted(arrow.source))}",
            before.status in arrow.source,
            call,
        )
        require(f"{call.verb} goes to {arrow.target}", after.status == arrow.target, call)
        require(
            "a fence rises with each claim and only then",
            after.fence == before.fence + arrow.fence,
            call,
        )
        if arrow.by_token:
            require(
                "nothing is written under a dead token",
                before.token == call.token is not None,
                call,
            )
        if arrow.when_due:
            early = (before.due_at or 0) / 1000 - self.seconds
            require(
                "nothing is taken before its time",
                early <= self._early,
                f"{call}, {early:.3f} s early",
            )
        grown = after.history_length - before.history_length
        require(
            "history grows by what happened",
            grown == arrow.history or (arrow.history is None and grown in (0, 1)),
            call,
        )
        spent = after.attempt_count - before.attempt_count
        if arrow.count is not None:
            require("budget is spent by attempts alone", spent == arrow.count, call)
        if call.verb == "dead_letter":
            require("budget is spent by attempts alone", spent == grown, call)
        if call.verb == "heartbeat":
            require(
                "a heartbeat never shortens a lease",
                (after.due_at or 0) >= (before.due_at or 0),
                call,
            )

    def _check_shape(self, after: Row, call: StoreCall) -> None:
        has_ended = after.status in TERMINAL
        require(
            "a due time goes with a task that goes on", (after.due_at is None) == has_ended, call
        )
        require(
            "a token goes with a claim",
            (after.token is None) == (after.status != "IN_FLIGHT"),
            call,
        )
        require("only what has ended has an end", after.expires_at is None or has_ended, call)

    def _claimed(self, before: Row, after: Row, call: StoreCall) -> None:
        token = call.grant.token
        require(
            "a claim installs its own token",
            after.token == token and token not in self.claims,
            call,
        )
        require("a newer version's row is not leased", after.version == 1, call)
        self.claims[token] = (after.task_id, after.fence, self.lives[after.task_id, after.life])

    def _redrove(self, before: Row, after: Row, call: StoreCall) -> None:
        require("a redrive sees the death it undoes", before.completed_at == _dead_at(call), call)
        require("a redrive gives the whole budget back", after.attempt_count == 0, call)
        require("a redrive counts", after.redrive_count == before.redrive_count + 1, call)
        require("what has expired is not sent back", not before.is_gone(self.seconds - 300), call)
        require("one request sends a task back once", before.op_id != call.options["op_id"], call)
        self._check_audit(call)
        self.errands.treated(call)
        payload = call.given[1].payload
        if payload is not None:
            self.lives[after.task_id, after.life] = payload

    def _check_budget(self, before: Row, after: Row, call: StoreCall) -> None:
        require(
            "no more attempts than the budget has", after.attempt_count <= max(self._budgets), call
        )
        if call.verb == "reschedule":
            require("a spent budget ends the task", after.attempt_count < max(self._budgets), call)
        elif call.verb == "dead_letter_lapsed" or (
            call.verb == "dead_letter" and _is_retryable(call)
        ):
            require(
                "no task dies before its budget is spent",
                after.attempt_count >= min(self._budgets),
                call,
            )

    def _check_key(self, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is None or row.concurrency_key is None:
            return
        place = (row.queue, row.concurrency_key)
        holder = self._holders.get(place)
        if after is not None and after.status == "IN_FLIGHT":
            require(
                "a concurrency key is held by one task",
                holder in (None, row.task_id),
                f"{row.task_id}, {holder}",
            )
            self._holders[place] = row.task_id
        elif holder == row.task_id:
            del self._holders[place]

    def _check_entry(self, task_id: str) -> None:
        row, item = self.row(task_id), self.database.tables[DLQ].get((task_id, "D"))
        entry = None if item is None or self._is_over(item, row) else item
        is_dead = row is not None and row.status == "DEAD" and not row.is_gone(self.seconds)
        require(
            "a dead-letter entry is there exactly while the task is dead",
            (entry is not None) == is_dead,
            task_id,
        )
        if entry is not None and row is not None:
            same = entry["lf"]["S"] == row.life and int(entry["dead_at"]["N"]) == row.completed_at
            require("a dead-letter entry is of the present death", same, task_id)

    def _is_over(self, entry: Mapping[str, Any], row: Row | None) -> bool:
        """Whether an entry's time is over; or will be by another clock, which has let its task be
        replaced already.
        """
        if "expires_at" not in entry:
            return False
        is_replaced = row is not None and entry["lf"]["S"] != row.life
        return int(entry["expires_at"]["N"]) <= self.seconds + (EARLY if is_replaced else 0)

    def _check_named(self, row: Row) -> None:
        # Whoever stood still for weeks with an outcome in hand may write one whose retention is
        # over already.
        if row.version == 1 and self._living(row.task_id) is not None:
            self.records.check_body(self.database, row)
            self.forgotten.check_row(self.database, row)

    def _check_audit(self, call: StoreCall) -> None:
        if self.is_audited:
            auditing.check_intent(self.database, call)

    # -- every answer ------------------------------------------------------------------------------

    def heard(self, call: StoreCall, answer: Any, error: RdqError | None) -> None:
        """A verb has come back to its caller."""
        call.error = error
        if call.verb == "forget" and error is None:
            self.forgotten.heard(call)
        if call.verb not in ARROWS and call.verb != "submit":
            return
        if error is None and _says_done(call, answer):
            done = bool(call.committed) or self._was_done_by_another_call(call)
            require("what a verb says it did, it did", done, call)
        if isinstance(error, StoreFailed) and not error.may_have_happened:
            require("what surely did not happen, did not", not call.committed, f"{call}: {error}")
        if call.committed and self._denies(call, answer, error):
            raise Broken("what a verb did, it doesn't deny", f"{call}: {error or answer}")

    def _was_done_by_another_call(self, call: StoreCall) -> bool:
        """A redrive or cancel that is repeated with its own `op_id` finds itself done; a heartbeat
        may be needless.
        """
        return call.verb in ("redrive", "cancel", "heartbeat")

    def _denies(self, call: StoreCall, answer: Any, error: RdqError | None) -> bool:
        _, made = call.committed[-1]
        row = self.row(made.task_id) if made is not None else None
        if row is None or row.life != made.life:
            return False
        match call.verb:
            case "submit":
                return error is None and not answer.created
            case "complete" | "reschedule":
                return isinstance(error, LeaseLost)
            case "dead_letter":
                return isinstance(error, LeaseLost) and call.given[1] is not None
            case "dead_letter_lapsed":
                return (
                    error is None and answer is False and row.history_length == made.history_length
                )
            case "claim" | "claim_keyed":
                return error is None and not hasattr(answer, "token") and row.token == made.token
            case "cancel":
                return isinstance(error, TaskConflict | TaskNotFound) and not row.is_gone(
                    self.seconds - EARLY
                )
            case _:
                return False


def _named(key: tuple[str, str]) -> str:
    return f"task {key[0][-6:]}/{key[1]}"


def _is_final(error: RdqError | None) -> bool:
    return isinstance(error, LeaseLost) or (
        isinstance(error, StoreFailed) and not error.may_have_happened
    )


def _dead_at(call: StoreCall) -> int:
    return to_millis(call.given[0].dead_at)


def _is_retryable(call: StoreCall) -> bool:
    attempt = call.given[1]
    return attempt is not None and attempt.outcome == "RETRYABLE_FAILURE"


def _says_done(call: StoreCall, answer: Any) -> bool:
    match call.verb:
        case "submit":
            return bool(answer.created)
        case "claim" | "claim_keyed" | "reclaim":
            return hasattr(answer, "token")
        case "dead_letter_lapsed":
            return bool(answer)
        case _:
            return True
