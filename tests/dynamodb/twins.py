"""A store in memory and one on DynamoDB, on one clock, that are told the same and must then look
the same.

A `Call` has everything in it that is decided once, so it can be made on both, fail half way on one,
and be made again.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from moto.backends import get_backend

from rdq_core.domain.ids import encode_id
from rdq_core.domain.lease import Claim
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.task import Status
from rdq_core.engine.ports import KEY_BUSY, Candidate, TaskStore
from rdq_core.errors import RdqError, StoreFailed
from rdq_core.stores.dynamodb.schema import definitions
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.stores.memory import MemoryStore
from rdq_core.testing.clock import FrozenClock, NoJitter, SkipsSleep
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
    """One verb on one task. It is given the store, and what that store has of the claim, candidate
    or entry.
    """

    verb: str
    task_id: str
    act: Callable[[TaskStore, Any], Any]
    of: Twin = (None, None)


@dataclass(slots=True)
class Twins:
    """Both stores. `counts` tells how often each verb had an effect, each fault was met, each end
    was reached, in all examples; `done` has the verbs of this one.
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

    # -- being told the same -----------------------------------------------------------------------

    def make(self, call: Call, fault: str, at: int) -> None:
        """The call on both, with a fault at one of DynamoDB's requests; a caller that died makes it
        again.
        """
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

    # -- looking the same --------------------------------------------------------------------------

    def compare(self, *task_ids: str) -> None:
        """What anybody can see of these tasks, of the index and of the DLQ."""
        for task_id in task_ids:
            task = self.memory.get(task_id)
            assert self.dynamo.get(task_id) == task
            if task is not None and task.status is Status.DEAD:
                self.note_entry(
                    task_id, (self.memory.dead_entry(task_id), self.dynamo.dead_entry(task_id))
                )
        ours, theirs = (
            store.candidates(
                QUEUE, 0, until=self.clock.now() + timedelta(days=400), limit=100
            ).items
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

    # -- the verbs ---------------------------------------------------------------------------------

    def status(self, task_id: str) -> Status | None:
        task = self.memory.get(task_id)
        return None if task is None else task.status

    def op(self) -> str:
        return f"op-{next(self._ops)}"

    def candidate(self, task_id: str) -> Candidate | None:
        page = self.memory.candidates(
            QUEUE, 0, until=self.clock.now() + timedelta(days=400), limit=100
        )
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
        return (
            answer.task.id,
            answer.token,
            answer.fencing_token,
            answer.claimed_at,
            answer.lease_expires_at,
        )
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
