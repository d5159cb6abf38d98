"""What both stores of a pair of twins are told: each verb on one task, decided to the last detail
before it is made.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from rdq_core.domain.attempt import Code
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Edit
from rdq_core.domain.task import Status, Task, failure_of
from rdq_core.engine.ports import Submission, TaskStore
from rdq_core.errors import StoreFailed
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
from tests.dynamodb.twins import IDS, LEASE, NOT_THERE, ORDER, RETENTION, Call, Twin, Twins


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
    tasks = [
        new_task(twins, task_id, variant),
        new_task(twins, IDS[variant % len(IDS)], variant + 1),
    ]

    def act(store: TaskStore, _: Any) -> list[Submission | str]:
        answers = store.submit_many(tasks, shards_of=lambda _queue: 1)
        if (
            failed := next((each for each in answers if isinstance(each, StoreFailed)), None)
        ) is not None:
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
            mine,
            attempt,
            a_failure(attempt),
            grant,
            fingerprint="v1:a",
            expires_at=kept(twins, variant),
        )

    return Call("dead-letter lapsed", task_id, act, lapsed)


def kept(twins: Twins, variant: int) -> Any:
    return twins.clock.now() + RETENTION if variant & 1 else None


def by_holder(
    verb: str, act: Callable[[Twins, int, TaskStore, Claim], Any]
) -> Callable[[Twins, str, int], Call]:
    """A verb of a claim's holder: of the newest, now and then of an older one."""

    def make(twins: Twins, task_id: str, variant: int) -> Call:
        claims = twins.claims.get(task_id, [])
        chosen = (None, None) if not claims else claims[0 if variant == 15 else -1]
        # Everything is decided now, so a call that is made again is the same.
        return Call(
            verb,
            task_id,
            lambda store, mine: NOT_THERE if mine is None else act(twins, variant, store, mine),
            chosen,
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
        claim,
        attempt,
        failure,
        now=twins.clock.now(),
        fingerprint="v1:a",
        expires_at=kept(twins, variant),
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
        "cancel",
        task_id,
        lambda store, _: store.cancel(task_id, now=now, op_id=op_id, expires_at=now + RETENTION),
    )


def of_entry(verb: str, act: Callable[..., Any]) -> Callable[[Twins, str, int], Call]:
    """A verb of an operator who has seen an entry: the newest, now and then an older one."""

    def make(twins: Twins, task_id: str, variant: int) -> Call:
        twins.clock.advance("1s")
        entries = twins.entries.get(task_id, [])
        chosen = (None, None) if not entries else entries[0 if variant == 15 else -1]
        done = partial(act, variant=variant, now=twins.clock.now(), op_id=twins.op())
        return Call(
            verb,
            task_id,
            lambda store, entry: NOT_THERE if entry is None else done(store, entry),
            chosen,
        )

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
