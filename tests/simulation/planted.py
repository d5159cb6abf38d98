"""Deliberate mistakes, each put into the product for the length of a run: what the simulation must
be able to see.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from unittest.mock import patch

from rdq_core.domain.attempt import Outcome
from rdq_core.engine import resolve
from rdq_core.engine.due_reader import DueReader
from rdq_core.engine.ports import Phase
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.sweep import Scheduler
from rdq_core.errors import StoreFailed, TaskConflict, TaskNotFound
from rdq_core.ops.advancing import Advancer
from rdq_core.runtime import kicking
from rdq_core.runtime.kicking import KickFunction
from rdq_core.stores.dynamodb import (
    claiming,
    dead_letters,
    forgetting,
    operator_verbs,
    reading,
    settling,
    submitting,
)
from rdq_core.stores.dynamodb.audit import DynamoAudit
from rdq_core.stores.dynamodb.bodies import Bodies
from rdq_core.stores.dynamodb.clock import StorageClock
from rdq_core.stores.dynamodb.concurrency_keys import free_key
from rdq_core.stores.dynamodb.coordination import DynamoReservations
from rdq_core.stores.dynamodb.expressions import ALWAYS, CLAUSES, IS_NEW_JOB, all_of
from rdq_core.stores.dynamodb.history import AttemptHistory
from rdq_core.stores.dynamodb.jobs import DynamoJobs, job_item
from rdq_core.stores.dynamodb.operator_verbs import OperatorVerbs
from rdq_core.stores.dynamodb.orphans import OrphanVerbs
from rdq_core.stores.dynamodb.references import References
from rdq_core.stores.dynamodb.schema import OPEN_JOBS, Attr
from rdq_core.stores.dynamodb.sender import ConditionFailed, Sender
from rdq_core.stores.dynamodb.settling import SettleVerbs
from rdq_core.stores.dynamodb.values import number, text

Mistake = Callable[[], contextlib.AbstractContextManager[object]]


def _without(clause: str) -> Mistake:
    return lambda: patch.dict(CLAUSES, {clause: ALWAYS})


def _replaced(owner: Any, name: str, new: Any) -> Mistake:
    return lambda: patch.object(owner, name, new)


def _wrapped(owner: Any, name: str, wrapper: Callable[..., Any]) -> Mistake:
    """`wrapper` gets the real thing first."""
    real = getattr(owner, name)

    def wrong(*given: Any, **options: Any) -> Any:
        return wrapper(real, *given, **options)

    return _replaced(owner, name, wrong)


def _both(*mistakes: Mistake) -> Mistake:
    @contextlib.contextmanager
    def planted() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for mistake in mistakes:
                stack.enter_context(mistake())
            yield

    return planted


def _everywhere(name: str, wrapper: Callable[..., Any], *modules: Any) -> Mistake:
    return _both(*(_wrapped(module, name, wrapper) for module in modules))


# -- mistakes --------------------------------------------------------------------------------------


def _same_fence(real: Any, fencing_token: int, grant: Any) -> Any:
    return real(fencing_token - 1, grant)


def _is_forgotten(_real: Any, *_given: Any, **_options: Any) -> None:
    return None


def _deletes_in_doubt(real: Any, self: Any, claim: Any, *given: Any, **options: Any) -> Any:
    try:
        return real(self, claim, *given, **options)
    except StoreFailed:
        record_key = options.get("record_key") or "A#0#none"
        with contextlib.suppress(StoreFailed):
            self._access.history.discard(claim.task.id, [record_key])
        raise


def _renews_later(real: Any, self: Any, row: Any, ends_at: Any) -> Any:
    return {Attr.BODY_ENDS_AT: number(int(ends_at.timestamp()))}


def _frees_early(real: Any, self: Any, claim: Any, *given: Any, **options: Any) -> Any:
    free_key(self._access, claim.task, claim.fencing_token)
    return real(self, claim, *given, **options)


def _numbers_by_budget(real: Any, row: Any, attempt: Any, claim_id: str) -> Any:
    return real(replace(row, history_length=row.task.attempt_count), attempt, claim_id)


def _never_us(real: Any, *given: Any) -> bool:
    real(*given)
    return False


def _always_us(_real: Any, *_given: Any) -> bool:
    return True


def _keeps_entry(_real: Any, self: Any, part: Any, entry: Any) -> None:
    self._access.sender.transact([part], nonce=self._access.ids.nonce())


def _in_two_writes(real: Any, self: Any, items: Any, *, nonce: str) -> None:
    for place, item in enumerate(items):
        real(self, [item], nonce=f"{nonce}/{place}")


def _holds_no_lapsed(real: Any, access: Any, seen: Any, task: Any) -> bool:
    holder = access.state(seen[Attr.TASK_ID]["S"])
    now = access.clock.now()
    return bool(real(access, seen, task) and holder is not None and not holder.task.is_due(now))


def _keeps_end(real: Any, sets: Any, removes: Any = ()) -> Any:
    return real(sets, [attr for attr in removes if attr is not Attr.EXPIRES_AT])


def _trusts_the_machine(_real: Any, self: Any) -> Any:
    return self._machine.now()


def _looks_into_one_shard(real: Any, self: Any, settings: Any, *rest: Any) -> Any:
    return real(self, replace(settings, index_shards=1, shards_ever=1), *rest)


def _one_more(real: Any, self: Any, task: Any, claim: Any, settings: Any, *rest: Any) -> Any:
    retry = replace(settings.retry, max_attempts=settings.retry.max_attempts + 1)
    return real(self, task, claim, replace(settings, retry=retry), *rest)


def _spends_on_release(
    real: Any, self: Any, claim: Any, row: Any, verb: Any, sets: Any, *given: Any, **options: Any
) -> Any:
    if verb == "release":
        sets = {**sets, Attr.ATTEMPT_COUNT: number(claim.task.attempt_count + 1)}
    return real(self, claim, row, verb, sets, *given, **options)


def _submits_anew(real: Any, access: Any, new: Any, refused: Any) -> Any:
    access.sender.put(access.tables.tasks, new.item, ALWAYS, {})
    return real(access, new, refused)


def _forgets_what_failed(real: Any, **fields: Any) -> Any:
    attempt = real(**fields)
    return (
        replace(attempt, fencing_token=None) if attempt.outcome is not Outcome.SUCCESS else attempt
    )


def _lets_fail(_real: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _cleans_up_blindly(_real: Any, self: Any, record: Any) -> None:
    old = record["dynamodb"]["OldImage"]
    self._access.history.discard_life(old["task_id"]["S"], old["lf"]["S"])


def _drops_intents(real: Any, self: Any, record: Any) -> None:
    if record.phase is not Phase.INTENT:
        real(self, record)


# -- mistakes of jobs and of those who wake sweeps -------------------------------------------------


def _works_before_writing(real: Any, self: Any, job: Any, order: Any) -> Any:
    read = self._read(job, order)
    for entry in read[0]:
        with contextlib.suppress(TaskConflict, TaskNotFound):
            self._do(job, order, entry)
    with patch.object(self, "_read", lambda *_: read), patch.object(self, "_do", _is_forgotten):
        return real(self, job, order)


def _believes_the_page(real: Any, self: Any, job: Any, order: Any, entries: Any) -> Any:
    whole = entries or {seen.task_id: seen for seen in job.page}
    with contextlib.nullcontext() if entries else patch.object(self, "_do", _is_forgotten):
        return real(self, job, order, whole)


def _takes_any_death(_real: Any, self: Any, seen: Any) -> Any:
    entry = self._store.dead_entry(seen.task_id)
    if entry is None:
        raise TaskConflict("it is not dead", task_id=seen.task_id)
    return entry


def _cuts_the_page(real: Any, self: Any, job: Any, order: Any) -> Any:
    entries, cursor, reads_on = real(self, job, order)
    return entries[:1], cursor, reads_on


def _goes_on_when_over(_real: Any, self: Any, job: Any, *, take_over: bool = False) -> Any:
    held = job.page and job.is_held(self._clock.now()) and not take_over
    return job if held else self._step(job)


def _begins_by_a_put(_real: Any, self: Any, job: Any) -> None:
    item = job_item({Attr.PK: text(OPEN_JOBS), Attr.SK: text(job.id)}, job)
    with contextlib.suppress(ConditionFailed):
        self._sender.put(self._table, item, all_of(IS_NEW_JOB), {})


def _never_lingers(real: Any, self: Any, parts: Any, slots: Any, limits: Any, stop: Any) -> None:
    real(self, parts, slots, replace(limits, linger=timedelta(0)), stop)


def _reserves_a_minute(real: Any, self: Any, queue: str, *, now: Any, until: Any) -> bool:
    return bool(real(self, queue, now=now, until=until + timedelta(minutes=1)))


MISTAKES: Final[dict[str, Mistake]] = {
    # A clause of a condition is dropped.
    "a submit replaces what is there": _without("IS_ABSENT"),
    "a reclaim takes a live lease": _without("IS_DUE"),
    "a claim believes an old index entry": _without("IS_AS_SEEN"),
    "a claim takes what it can't read": _without("IS_READABLE"),
    "a claim is settled without its token": _without("IS_HELD_BY_CALLER"),
    "a heartbeat shortens a lease": _without("IS_EARLIER"),
    "a cancel stops what has ended": _without("IS_LIVE"),
    "a redrive undoes a later death": _without("DIED_THEN"),
    "a job sends a task back twice": _without("IS_NOT_DONE"),
    "a record is put over a published one": _without("IS_FRESH"),
    "a renewal shortens a body's life": _without("BODY_ENDS_SOONER"),
    "a slot is taken from its holder": _without("KEY_IS_FREE"),
    "a leaked slot is taken twice": _without("KEY_IS_AS_SEEN"),
    "a slot is freed without a condition": _without("KEY_IS_HELD_BY_CLAIM"),
    # A step is left out, or done too early or too late.
    "a claim doesn't raise the fence": _wrapped(claiming, "leased", _same_fence),
    "an attempt is published without its record": _wrapped(AttemptHistory, "put", _is_forgotten),
    "a record in doubt is deleted": _wrapped(SettleVerbs, "_settle", _deletes_in_doubt),
    "a body is not renewed before the write": _wrapped(Bodies, "_renew", _renews_later),
    "a slot is freed before the claim is settled": _wrapped(SettleVerbs, "_settle", _frees_early),
    "a slot is never freed by its own holder nor by others": _wrapped(
        claiming, "is_key_held", lambda *_: True
    ),
    "attempts are numbered by the budget": _everywhere(
        "next_record", _numbers_by_budget, settling, claiming, dead_letters
    ),
    "a winner takes itself for a loser": _everywhere(
        "was_our_write", _never_us, settling, dead_letters
    ),
    "a loser takes itself for a winner": _everywhere(
        "was_our_write", _always_us, settling, dead_letters
    ),
    "a redrive leaves the dead-letter entry": _wrapped(
        OperatorVerbs, "_write_with_entry", _keeps_entry
    ),
    "a transaction is sent as two writes": _wrapped(Sender, "transact", _in_two_writes),
    "a lapsed holder loses its key": _wrapped(claiming, "is_key_held", _holds_no_lapsed),
    "a redrive leaves the end of the row": _wrapped(operator_verbs, "change", _keeps_end),
    "a worker trusts its machine's clock": _wrapped(StorageClock, "now", _trusts_the_machine),
    "a sweep looks into one shard only": _wrapped(DueReader, "_begin_look", _looks_into_one_shard),
    "a budget has one attempt too many": _wrapped(Resolver, "resolve", _one_more),
    "a release spends budget": _wrapped(SettleVerbs, "_settle", _spends_on_release),
    "a submit that lost writes all the same": _wrapped(submitting, "_existing", _submits_anew),
    "a record forgets whose claim it was": _wrapped(resolve, "Attempt", _forgets_what_failed),
    # Who is forgotten, who cleans up, and who did what.
    "a cancel ends a task that came later": _without("IS_THIS_LIFE"),
    "a task is stored without its reference": _wrapped(References, "put", _is_forgotten),
    "a reference ends before its task": _wrapped(References, "_change_ends", _is_forgotten),
    "no claim looks for the tombstone": _wrapped(References, "are_forgotten", lambda *_: False),
    "a write is denied when what follows it fails": _everywhere(
        "after_a_write", _lets_fail, submitting, forgetting, reading
    ),
    "a clean-up doesn't ask whose it is": _wrapped(OrphanVerbs, "clean_up", _cleans_up_blindly),
    "an operation is begun without its intent": _wrapped(DynamoAudit, "append", _drops_intents),
    # Bulk jobs.
    "a job treats an entry twice": _both(
        _wrapped(Advancer, "_still_dead", _takes_any_death), _without("IS_NOT_DONE")
    ),
    "a page is worked off before it is written down": _wrapped(
        Advancer, "_next_page", _works_before_writing
    ),
    "a page that is taken over counts as done": _wrapped(
        Advancer, "_worked_off", _believes_the_page
    ),
    "a job goes on from where it has not been": _wrapped(Advancer, "_read", _cuts_the_page),
    "a job is changed by one who has not seen its last step": _without("JOB_IS_AS_READ"),
    "a job that is over goes on": _wrapped(Advancer, "advance", _goes_on_when_over),
    "a job that has ended is begun again by a late request": _wrapped(
        DynamoJobs, "create", _begins_by_a_put
    ),
    # Kicks, and the sweeps that they start.
    "a sweep withdraws its announcement after looking": _wrapped(
        Scheduler, "__init__", _never_lingers
    ),
    "a refused start keeps its reservation": _wrapped(KickFunction, "_release", _is_forgotten),
    "a reservation lasts longer than a sweep looks": _wrapped(
        DynamoReservations, "acquire", _reserves_a_minute
    ),
    "a kick leaves work of the next seconds to the schedule": _replaced(
        kicking, "SOON", timedelta(0)
    ),
}
