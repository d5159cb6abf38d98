"""A store in memory and one on DynamoDB, on one clock, that are told the same and must then look the same.

A `Call` has everything in it that is decided once, so it can be made on both, fail half way on one, and be made again.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from moto.backends import get_backend

from rdq_core.domain.attempt import Code
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Edit
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.task import Status, Task, failure_of
from rdq_core.engine.ports import KEY_BUSY, Candidate, Submission, TaskStore
from rdq_core.errors import RdqError, StoreFailed
from rdq_core.stores.dynamodb.schema import definitions
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.contract.factories import (
    a_failed,
    a_failure,
    a_grant,
    a_lapse,
    a_result,
    a_success,
    a_task,
    noise,
)
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.world import CountedIds
from tests.support.stores import EPOCH_OF_TESTS, TABLES

QUEUE: Final = "billing"
LEASE: Final = timedelta(minutes=1)
RETENTION: Final = timedelta(hours=24)
IDS: Final = [encode_id(number) for number in range(1, 5)]
ORDER: Final = Reference(ReferenceKind.TARGET, "order:1")

Twin = tuple[Any, Any]
"""The same thing as the one in memory and the one on DynamoDB have it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One verb on one task. It is given the store, and what that store has of the claim, candidate or entry."""

    verb: str
    task_id: str
    act: Callable[[TaskStore, Any], Any]
    of: Twin = (None, None)


@dataclass(slots=True)
class Twins:
    """Both stores. `counts` tells how often each verb had an effect, each fault was met, each end was reached, in all
    examples; `done` has the verbs of this one.
    """

    client: Any
    counts: Counter[str]
    clock: FrozenClock = field(default_factory=lambda: FrozenClock(EPOCH_OF_TESTS))
    claims: dict[str, list[Twin]] = field(default_factory=dict)
    entries: dict[str, list[Twin]] = field(default_factory=dict)
    memory: MemoryStore = field(init=False)
    dynamo: DynamoTaskStore = field(init=False)
    done: Counter[str] = field(default_factory=Counter)
    _ops: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        get_backend("dynamodb").reset()
        for definition in definitions(TABLES).values():
            self.client.create_table(**definition)
        self.memory = MemoryStore(clock=self.clock, ids=CountedIds())
        self.dynamo = DynamoTaskStore(
            self.client,
            TABLES,
            clock=self.clock,
            ids=CountedIds(),
            jitter=NoJitter(),
            sleeper=SkipsSleep(FrozenClock()),
            shards_ever=lambda _queue: 1,
        )

    # -- being told the same --------------------------------------------------------------------------------------

    def make(self, call: Call, fault: str, at: int) -> None:
        """The call on both, with a fault at one of DynamoDB's requests; a caller that died makes it again."""
        ours = outcome(lambda: call.act(self.memory, call.of[0]))
        with FaultScript(self.client) as faults:
            script(faults, fault, at)
            theirs = outcome(lambda: call.act(self.dynamo, call.of[1]))
        died = isinstance(theirs, StoreFailed)
        if died:
            theirs = outcome(lambda: call.act(self.dynamo, call.of[1]))
        if faults.count() >= at:
            self.counts[fault] += 1
        self.note(call, ours, theirs)
        if not died and not is_refusal(ours):
            assert plain(theirs) == plain(ours), call.verb
        self.compare(call.task_id)

    def note(self, call: Call, ours: Any, theirs: Any) -> None:
        """Remember what took effect, and claims for whoever settles them, or comes too late."""
        if is_refusal(ours):
            return
        self.counts[call.verb] += 1
        self.done[call.verb] += 1
        if isinstance(ours, Claim):
            assert isinstance(theirs, Claim), call.verb
            assert self.memory.load(ours) == self.dynamo.load(theirs)
            self.claims.setdefault(call.task_id, []).append((ours, theirs))
        task = self.memory.get(call.task_id)
        if task is not None and task.status.is_terminal:
            self.counts[task.status] += 1

    # -- looking the same -----------------------------------------------------------------------------------------

    def compare(self, *task_ids: str) -> None:
        """What anybody can see of these tasks, of the index and of the DLQ."""
        for task_id in task_ids:
            task = self.memory.get(task_id)
            assert self.dynamo.get(task_id) == task
            if task is not None and task.status is Status.DEAD:
                self.note_entry(task_id, (self.memory.dead_entry(task_id), self.dynamo.dead_entry(task_id)))
        ours, theirs = (
            store.candidates(QUEUE, 0, until=self.clock.now() + timedelta(days=400), limit=100).items
            for store in (self.memory, self.dynamo)
        )
        assert sorted(theirs, key=by_id) == sorted(ours, key=by_id)

    def compare_counts(self) -> None:
        """The numbers, and the DLQ as a whole."""
        assert self.dynamo.counts(QUEUE) == self.memory.counts(QUEUE)
        assert self.dynamo.dead(QUEUE, limit=100).items == self.memory.dead(QUEUE, limit=100).items

    def note_entry(self, task_id: str, entry: Twin) -> None:
        assert entry[1] == entry[0]
        if entry[0] is not None and (entry not in self.entries.setdefault(task_id, [])):
            self.entries[task_id].append(entry)

    # -- the verbs ------------------------------------------------------------------------------------------------

    def status(self, task_id: str) -> Status | None:
        task = self.memory.get(task_id)
        return None if task is None else task.status

    def op(self) -> str:
        return f"op-{next(self._ops)}"

    def candidate(self, task_id: str) -> Candidate | None:
        page = self.memory.candidates(QUEUE, 0, until=self.clock.now() + timedelta(days=400), limit=100)
        return next((each for each in page.items if each.task_id == task_id), None)


def by_id(candidate: Candidate) -> str:
    return candidate.task_id


def outcome(call: Callable[[], Any]) -> Any:
    """What a call answered, or the error that it met."""
    try:
        return call()
    except RdqError as error:
        return error


def is_refusal(answer: Any) -> bool:
    return isinstance(answer, RdqError) or answer in (False, KEY_BUSY, NOT_THERE)


NOT_THERE: Final = object()
"""The answer of a verb for which nothing is there that it could be done to."""


def plain(answer: Any) -> Any:
    """What must be the same of two answers."""
    if isinstance(answer, Claim):
        return (answer.task.id, answer.token, answer.fencing_token, answer.claimed_at, answer.lease_expires_at)
    return [plain(each) for each in answer] if isinstance(answer, list) else answer


def dies_after(faults: FaultScript, at: int) -> None:
    faults.lose_answer(nth=at)
    faults.lose_request(nth=at + 1, times=None)


FAULTS: Final[dict[str, Callable[[FaultScript, int], None]]] = {
    "request lost": lambda faults, at: faults.lose_request(nth=at),
    "answer lost": lambda faults, at: faults.lose_answer(nth=at),
    "throttled": lambda faults, at: faults.reject("ThrottlingException", nth=at),
    "conflict": lambda faults, at: faults.reject("TransactionConflictException", nth=at),
    "internal error": lambda faults, at: faults.reject("InternalServerError", nth=at),
    "died before": lambda faults, at: faults.lose_request(nth=at, times=None),
    "died after": dies_after,
}
NO_FAULT: Final = "no fault"


def script(faults: FaultScript, fault: str, at: int) -> None:
    if fault != NO_FAULT:
        FAULTS[fault](faults, at)


# -- calls, decided to the last detail ------------------------------------------------------------------------------


def new_task(twins: Twins, task_id: str, variant: int) -> Task:
    """One of eight kinds: small or large, keyed or not, with references or without."""
    return a_task(
        id=task_id,
        payload=noise(10 if variant & 1 else 2000),
        concurrency_key="ann" if variant & 2 else None,
        target=ORDER.value if variant & 4 else None,
        requested_by="ann" if variant & 4 else None,
        next_attempt_at=twins.clock.now() + timedelta(minutes=variant // 8),
    )


def submit(twins: Twins, task_id: str, variant: int) -> Call:
    task = new_task(twins, task_id, variant)
    return Call("submit", task_id, lambda store, _: store.submit(task, shards=1))


def submit_many(twins: Twins, task_id: str, variant: int) -> Call:
    tasks = [new_task(twins, task_id, variant), new_task(twins, IDS[variant % len(IDS)], variant + 1)]

    def act(store: TaskStore, _: Any) -> list[Submission | str]:
        answers = store.submit_many(tasks, shards_of=lambda _queue: 1)
        if (failed := next((each for each in answers if isinstance(each, StoreFailed)), None)) is not None:
            raise failed
        return [each if isinstance(each, Submission) else each.code for each in answers]

    return Call("submit many", task_id, act)


def claim(twins: Twins, task_id: str, variant: int) -> Call:
    candidate = twins.candidate(task_id)
    if candidate is not None and variant & 3:
        twins.clock.advance(max(candidate.due_at - twins.clock.now(), timedelta(0)))
    grant = a_grant(twins.clock.now(), lease=LEASE)

    def act(store: TaskStore, _: Any) -> Any:
        if candidate is None:
            return NOT_THERE
        claims = store.claim if candidate.concurrency_key is None else store.claim_keyed
        return claims(candidate, grant) or NOT_THERE

    keyed = candidate is not None and candidate.concurrency_key is not None
    return Call("claim keyed" if keyed else "claim", task_id, act)


def lapse(twins: Twins, task_id: str) -> Twin:
    """The lease lapses, and both find it so. Somebody who comes too early finds nothing."""
    candidate = twins.candidate(task_id)
    if candidate is None or candidate.status is not Status.IN_FLIGHT:
        return (None, None)
    twins.clock.advance(max(candidate.due_at - twins.clock.now(), timedelta(0)))
    now = twins.clock.now()
    return (twins.memory.lapsed(candidate, now=now), twins.dynamo.lapsed(candidate, now=now))


def reclaim(twins: Twins, task_id: str, variant: int) -> Call:
    lapsed, grant = lapse(twins, task_id), a_grant(twins.clock.now(), lease=LEASE)

    def act(store: TaskStore, mine: Claim | None) -> Any:
        return NOT_THERE if mine is None else store.reclaim(mine, a_lapse(mine), grant) or NOT_THERE

    return Call("reclaim", task_id, act, lapsed)


def dead_letter_lapsed(twins: Twins, task_id: str, variant: int) -> Call:
    lapsed, grant = lapse(twins, task_id), a_grant(twins.clock.now(), lease=LEASE)

    def act(store: TaskStore, mine: Claim | None) -> Any:
        if mine is None:
            return NOT_THERE
        attempt = a_lapse(mine)
        return store.dead_letter_lapsed(
            mine, attempt, a_failure(attempt), grant, fingerprint="v1:a", expires_at=kept(twins, variant)
        )

    return Call("dead-letter lapsed", task_id, act, lapsed)


def kept(twins: Twins, variant: int) -> Any:
    return twins.clock.now() + RETENTION if variant & 1 else None


def by_holder(verb: str, act: Callable[[Twins, int, TaskStore, Claim], Any]) -> Callable[[Twins, str, int], Call]:
    """A verb of a claim's holder: of the newest, now and then of an older one."""

    def make(twins: Twins, task_id: str, variant: int) -> Call:
        claims = twins.claims.get(task_id, [])
        chosen = (None, None) if not claims else claims[0 if variant == 15 else -1]
        # Everything is decided now, so a call that is made again is the same.
        return Call(
            verb, task_id, lambda store, mine: NOT_THERE if mine is None else act(twins, variant, store, mine), chosen
        )

    return make


def _complete(twins: Twins, variant: int, store: TaskStore, claim: Claim) -> None:
    now = twins.clock.now()
    result = a_result(noise(2500) if variant & 1 else b"done")
    store.complete(claim, a_success(claim, now), result, now=now, expires_at=now + RETENTION)


def _reschedule(twins: Twins, variant: int, store: TaskStore, claim: Claim) -> None:
    attempt = a_failed(claim, twins.clock.now())
    due_at = twins.clock.now() + timedelta(seconds=variant)
    store.reschedule(claim, attempt, a_failure(attempt), due_at=due_at)


def _dead_letter(twins: Twins, variant: int, store: TaskStore, claim: Claim) -> None:
    attempt = a_failed(claim, twins.clock.now()) if variant & 2 else None
    failure = a_failure(attempt) if attempt else failure_of(Code.ATTEMPTS_EXHAUSTED, None)
    assert failure is not None
    store.dead_letter(
        claim, attempt, failure, now=twins.clock.now(), fingerprint="v1:a", expires_at=kept(twins, variant)
    )


def _release(twins: Twins, variant: int, store: TaskStore, claim: Claim) -> None:
    failure = failure_of(Code.WORKER_SHUTDOWN, None)
    assert failure is not None
    store.release(claim, failure, due_at=twins.clock.now() + timedelta(seconds=variant))


def _heartbeat(twins: Twins, variant: int, store: TaskStore, claim: Claim) -> None:
    store.heartbeat(claim, twins.clock.now() + variant * LEASE)


def cancel(twins: Twins, task_id: str, variant: int) -> Call:
    now, op_id = twins.clock.now(), twins.op()
    return Call(
        "cancel", task_id, lambda store, _: store.cancel(task_id, now=now, op_id=op_id, expires_at=now + RETENTION)
    )


def of_entry(verb: str, act: Callable[..., Any]) -> Callable[[Twins, str, int], Call]:
    """A verb of an operator who has seen an entry: the newest, now and then an older one."""

    def make(twins: Twins, task_id: str, variant: int) -> Call:
        twins.clock.advance("1s")
        entries = twins.entries.get(task_id, [])
        chosen = (None, None) if not entries else entries[0 if variant == 15 else -1]
        done = partial(act, variant=variant, now=twins.clock.now(), op_id=twins.op())
        return Call(verb, task_id, lambda store, entry: NOT_THERE if entry is None else done(store, entry), chosen)

    return make


def _redrive(store: TaskStore, entry: DeadEntry, *, variant: int, now: Any, op_id: str) -> Task:
    edit = Edit(payload=noise(3000 if variant & 1 else 20)) if variant & 2 else Edit()
    return store.redrive(entry, edit, now=now, op_id=op_id, shards=1)


def _purge(store: TaskStore, entry: DeadEntry, *, variant: int, now: Any, op_id: str) -> None:
    store.purge(entry, now=now, op_id=op_id)


def forget(twins: Twins, task_id: str, variant: int) -> Call:
    now = twins.clock.now()
    return Call("forget", task_id, lambda store, _: store.forget(ORDER, now=now) or NOT_THERE)


Verb = Callable[[Twins, str, int], Call]

VERBS: Final[dict[str, Verb]] = {
    "submit": submit,
    "submit many": submit_many,
    "claim": claim,
    "claim keyed": claim,
    "heartbeat": by_holder("heartbeat", _heartbeat),
    "complete": by_holder("complete", _complete),
    "reschedule": by_holder("reschedule", _reschedule),
    "dead-letter": by_holder("dead-letter", _dead_letter),
    "release": by_holder("release", _release),
    "reclaim": reclaim,
    "dead-letter lapsed": dead_letter_lapsed,
    "cancel": cancel,
    "redrive": of_entry("redrive", _redrive),
    "purge": of_entry("purge", _purge),
    "forget": forget,
}

LIKELY: Final[dict[Status | None, Sequence[str]]] = {
    None: ("submit", "submit many"),
    Status.PENDING: (*9 * ("claim",), "cancel", "forget"),
    Status.IN_FLIGHT: (
        "dead-letter",
        "dead-letter lapsed",
        "release",
        "reschedule",
        "heartbeat",
        "reclaim",
        "complete",
        "dead-letter",
        "dead-letter lapsed",
    ),
    Status.DEAD: ("redrive", "purge", "redrive", "purge"),
    Status.SUCCEEDED: ("forget", "submit"),
    Status.CANCELLED: ("submit many", "forget"),
}
"""What is often done to a task in a status; everything else is tried now and then, and refused."""


def likely(twins: Twins, task_id: str) -> Sequence[str]:
    """Of what is often done to a task, the half that was done least in this life of the stores."""
    verbs = sorted(LIKELY[twins.status(task_id)], key=lambda verb: twins.done[verb])
    return verbs[: (len(verbs) + 1) // 2]
