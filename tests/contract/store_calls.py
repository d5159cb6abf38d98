"""The verbs that take more than one request, made ready to be disturbed between any two of them.

A `Ready` is a call with everything in it that is decided once: moments, tokens, attempts. So it can
be made, fail half way, and be made again exactly as it was. `done` tells from what anybody can see
whether it has happened.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from rdq_core.domain.attempt import Code
from rdq_core.domain.lease import Claim, once_more
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.task import Failure, Status, Task
from rdq_core.engine.ports import TaskStore
from rdq_core.errors import RdqError
from rdq_core.testing.contract.bench import FINGERPRINT, LEASE, RETENTION, Bench, an_op
from rdq_core.testing.contract.factories import (
    a_failed,
    a_failure,
    a_grant,
    a_lapse,
    a_result,
    a_success,
    a_task,
    a_task_id,
    noise,
)
from rdq_core.testing.contract.submitting import a_failure_before

BIG: Final = noise(3000)
EDITED: Final = noise(4000)
RESULT: Final = noise(2500)
WORKER: Final = "the-call:1"
"""Payload, result and worker that only a call has, so that it is known wherever it shows up."""
OTHERS_EDITED: Final = noise(4100)
OTHERS_RESULT: Final = noise(2600)
PAYLOADS: Final = (BIG, EDITED, OTHERS_EDITED)

LONG: Final = timedelta(days=200)
"""Longer than a body lives by itself, so that it must be renewed first."""


@dataclass(frozen=True, slots=True)
class Ready:
    """One call on one task, decided to the last detail, and how to see that it has happened.

    `came_late` tells of its answer that somebody else was faster, where that is no error.
    """

    task_id: str
    call: Callable[[TaskStore], object]
    done: Callable[[Task | None], bool]
    came_late: Callable[[Any], bool] = lambda _answer: False


Prepare = Callable[[Bench], Ready]


def submit(bench: Bench) -> Ready:
    given = (a_failure_before(bench, 1), a_failure_before(bench, 2))
    task = a_task(payload=BIG, attempts=given)
    return Ready(
        task.id,
        lambda store: store.submit(task, shards=1),
        lambda task: task is not None,
        came_late=lambda answer: not answer.created,
    )


def submit_many(bench: Bench) -> Ready:
    task = a_task(payload=BIG, target="order:1", attempts=(a_failure_before(bench, 1),))
    fellows = [a_task(payload=BIG) for _ in range(2)]

    def call(store: TaskStore) -> object:
        answers = store.submit_many([fellows[0], task, fellows[1]], shards_of=lambda _: 1)
        for answer in answers:
            if isinstance(answer, RdqError):
                raise answer
        return answers[1]

    return Ready(
        task.id,
        call,
        lambda task: task is not None,
        came_late=lambda answer: not answer.created,
    )


def forget(bench: Bench) -> Ready:
    return _forget(bench, _second_claim(bench).task.id)


def forget_dead(bench: Bench) -> Ready:
    bench.dead_letter(held := _second_claim(bench))
    return _forget(bench, held.task.id)


def _forget(bench: Bench, task_id: str) -> Ready:
    order = Reference(ReferenceKind.TARGET, bench.task(task_id).target or "")
    bench.clock.advance("1s")
    now = bench.now
    return Ready(task_id, lambda store: store.forget(order, now=now), lambda task: task is None)


def claim(bench: Bench) -> Ready:
    task = bench.submit(payload=BIG)
    candidate, grant = bench.candidate(task.id), a_grant(bench.now)
    return Ready(
        task.id, lambda store: store.claim(candidate, grant), is_(Status.IN_FLIGHT), is_none
    )


def complete(bench: Bench) -> Ready:
    return _complete(bench, RETENTION)


def complete_kept_long(bench: Bench) -> Ready:
    return _complete(bench, LONG)


def _complete(bench: Bench, keep: timedelta) -> Ready:
    held, now = _second_claim(bench), bench.now
    success = a_success(held, now, worker=WORKER)
    return Ready(
        held.task.id,
        lambda store: store.complete(
            held, success, a_result(RESULT), now=now, expires_at=now + keep
        ),
        is_(Status.SUCCEEDED),
    )


def reschedule(bench: Bench) -> Ready:
    return _reschedule(bench, timedelta(minutes=5))


def reschedule_far_ahead(bench: Bench) -> Ready:
    return _reschedule(bench, LONG)


def _reschedule(bench: Bench, after: timedelta) -> Ready:
    held, now = _second_claim(bench), bench.now
    failed = a_failed(held, now, worker=WORKER)
    return Ready(
        held.task.id,
        lambda store: store.reschedule(held, failed, a_failure(failed), due_at=now + after),
        has_attempts(2),
    )


def release(bench: Bench) -> Ready:
    held, now = _second_claim(bench), bench.now
    return Ready(
        held.task.id,
        lambda store: store.release(held, Failure("worker_shutdown"), due_at=now),
        lambda task: (
            task is not None and task.failure is not None and task.failure.code == "worker_shutdown"
        ),
    )


def adopt(bench: Bench) -> Ready:
    handed, grant = bench.handed_over(payload=BIG), a_grant(bench.now, lease=2 * LEASE)
    return Ready(
        handed.task.id,
        lambda store: store.adopt(handed.task.id, handed.token, grant),
        lambda task: task is not None and task.lease_expires_at == grant.lease_expires_at,
    )


def release_lapsed(bench: Bench) -> Ready:
    lapsed = bench.lapse(bench.handed_over(payload=BIG))
    now, grant, unreached = (
        bench.now,
        a_grant(bench.now),
        once_more(None, bench.now, handed_over=True),
    )
    return Ready(
        lapsed.task.id,
        lambda store: store.release_lapsed(
            lapsed, Failure(Code.UNAVAILABLE), grant, due_at=now, unreached=unreached
        ),
        lambda task: (
            task is not None and task.failure is not None and task.failure.code == Code.UNAVAILABLE
        ),
        came_late=lambda answer: not answer,
    )


def dead_letter(bench: Bench) -> Ready:
    return _dead_letter(bench, None)


def dead_letter_kept_for_a_while(bench: Bench) -> Ready:
    return _dead_letter(bench, LONG)


def _dead_letter(bench: Bench, keep: timedelta | None) -> Ready:
    held, now = _second_claim(bench), bench.now
    failed = a_failed(held, now, worker=WORKER)
    return Ready(
        held.task.id,
        lambda store: store.dead_letter(
            held,
            failed,
            a_failure(failed),
            now=now,
            fingerprint=FINGERPRINT,
            expires_at=None if keep is None else now + keep,
        ),
        is_(Status.DEAD),
    )


def reclaim(bench: Bench) -> Ready:
    lapsed = bench.lapse(_second_claim(bench))
    lapse, grant = replace(a_lapse(lapsed), worker=WORKER), a_grant(bench.now)
    return Ready(
        lapsed.task.id, lambda store: store.reclaim(lapsed, lapse, grant), has_attempts(2), is_none
    )


def dead_letter_lapsed(bench: Bench) -> Ready:
    lapsed = bench.lapse(_second_claim(bench))
    lapse, grant = replace(a_lapse(lapsed), worker=WORKER), a_grant(bench.now)
    return Ready(
        lapsed.task.id,
        lambda store: store.dead_letter_lapsed(
            lapsed, lapse, a_failure(lapse), grant, fingerprint=FINGERPRINT, expires_at=None
        ),
        is_(Status.DEAD),
        came_late=lambda answer: not answer,
    )


def cancel(bench: Bench) -> Ready:
    held, now, op_id = _second_claim(bench), bench.now, an_op()
    return Ready(
        held.task.id,
        lambda store: store.cancel(held.task.id, now=now, op_id=op_id, expires_at=now + LONG),
        is_(Status.CANCELLED),
    )


def redrive(bench: Bench) -> Ready:
    return _redrive(bench, NO_EDIT)


def redrive_edited(bench: Bench) -> Ready:
    return _redrive(bench, Edit(payload=EDITED))


def _redrive(bench: Bench, edit: Edit) -> Ready:
    bench.dead_letter(held := _second_claim(bench))
    entry = bench.entry(held.task.id)
    bench.clock.advance("1s")
    now, op_id = bench.now, an_op()
    return Ready(
        entry.task_id,
        lambda store: store.redrive(entry, edit, now=now, op_id=op_id, shards=1),
        lambda task: task is not None and task.redrive_count == 1,
    )


def purge(bench: Bench) -> Ready:
    bench.dead_letter(held := _second_claim(bench))
    entry = bench.entry(held.task.id)
    bench.clock.advance("1s")
    now, op_id = bench.now, an_op()
    return Ready(
        entry.task_id,
        lambda store: store.purge(entry, now=now, op_id=op_id),
        lambda task: task is None,
    )


ALL: Final[tuple[Prepare, ...]] = (
    submit,
    submit_many,
    claim,
    complete_kept_long,
    reschedule_far_ahead,
    release,
    adopt,
    release_lapsed,
    dead_letter,
    dead_letter_kept_for_a_while,
    reclaim,
    dead_letter_lapsed,
    cancel,
    redrive_edited,
    purge,
    forget,
    forget_dead,
)


def _second_claim(bench: Bench) -> Claim:
    """A claim on a task that has failed once, with a payload too large for its row, and with
    references.
    """
    first = bench.claimed(payload=BIG, target=f"order:{a_task_id()}", requested_by="ann")
    bench.reschedule(first)
    return bench.claim(first.task.id)


def is_none(answer: object) -> bool:
    return answer is None


def is_(status: Status) -> Callable[[Task | None], bool]:
    return lambda task: task is not None and task.status is status


def has_attempts(number: int) -> Callable[[Task | None], bool]:
    return lambda task: task is not None and len(task.attempts) >= number


# -- what must be true whatever happened -----------------------------------------------------------


def check_whole(bench: Bench, task_id: str) -> None:
    """Nobody can see half of anything: history, entry, index, payload and result all tell the same
    story.
    """
    task, entry = bench.store.get(task_id), bench.store.dead_entry(task_id)
    proposed = [
        each for each in bench.candidates(ahead=timedelta(days=800)) if each.task_id == task_id
    ]
    listed = [each for each in bench.dead_entries() if each.task_id == task_id]
    if task is None:
        assert (entry, proposed, listed) == (None, [], [])
        return
    numbers = [attempt.attempt_no for attempt in task.attempts]
    assert numbers == list(range(1, len(numbers) + 1))
    assert task.attempt_count <= len(numbers)
    assert task.payload in PAYLOADS
    assert (task.result is not None) <= (task.status is Status.SUCCEEDED)
    assert listed == ([entry] if entry else [])
    assert (entry is not None) == (task.status is Status.DEAD)
    due_at = task.next_attempt_at or task.lease_expires_at
    assert [each.due_at for each in proposed] == ([] if due_at is None else [due_at])


def shows(task: Task | None) -> bool:
    """Whether anything that a call brings can be seen of the task."""
    if task is None:
        return False
    return (
        task.payload == EDITED
        or task.result == RESULT
        or WORKER in {each.worker for each in task.attempts}
    )


def run_to_the_end(bench: Bench, task_id: str) -> Task | None:
    """What a sweeper that knows nothing of what happened makes of the task: claims it, takes it
    over, completes it.
    """
    for _ in range(3):
        task = bench.store.get(task_id)
        if task is None or task.status.is_terminal:
            return task
        bench.clock.advance(
            max(
                timedelta(0),
                (task.next_attempt_at or task.lease_expires_at or bench.now) - bench.now,
            )
        )
        candidate = bench.candidate(task_id)
        claim = bench.store.claim(candidate, a_grant(bench.now))
        if claim is None:
            lapsed = bench.store.lapsed(candidate, now=bench.now)
            claim = lapsed and bench.store.reclaim(lapsed, a_lapse(lapsed), a_grant(bench.now))
        if claim is not None:
            assert bench.store.load(claim).payload in PAYLOADS
            bench.complete(claim, a_result(OTHERS_RESULT))
    return bench.store.get(task_id)


# -- what others do meanwhile ----------------------------------------------------------------------


def takes_over(others: Bench, task_id: str) -> None:
    """The lease lapses and somebody reclaims; or what waits is claimed."""
    _taken(others, task_id)


def takes_over_and_succeeds(others: Bench, task_id: str) -> None:
    others.complete(_taken(others, task_id), a_result(OTHERS_RESULT))


def takes_over_and_fails(others: Bench, task_id: str) -> None:
    others.reschedule(_taken(others, task_id))


def takes_over_and_buries(others: Bench, task_id: str) -> None:
    others.dead_letter(_taken(others, task_id))


def buries_redrives_and_claims(others: Bench, task_id: str) -> None:
    takes_over_and_buries(others, task_id)
    redrives(others, task_id)
    others.claim(task_id)


def buries_and_purges(others: Bench, task_id: str) -> None:
    takes_over_and_buries(others, task_id)
    others.purge(task_id)


def purges_and_begins_anew(others: Bench, task_id: str) -> None:
    if others.store.dead_entry(task_id) is None:
        takes_over_and_buries(others, task_id)
    others.purge(task_id)
    begins_anew(others, task_id)


def cancels(others: Bench, task_id: str) -> None:
    others.cancel(task_id)


def cancels_and_begins_anew(others: Bench, task_id: str) -> None:
    others.cancel(task_id)
    others.clock.advance(2 * RETENTION)
    begins_anew(others, task_id)


def heartbeats(others: Bench, task_id: str) -> None:
    """The holder shows up again. He is known by what the store still says of his claim."""
    lapsed = others.store.lapsed(others.candidate(task_id), now=others.now)
    if lapsed is not None:
        others.heartbeat(lapsed)


def redrives(others: Bench, task_id: str) -> None:
    others.clock.advance("1s")
    others.redrive(task_id)


def redrives_with_another_payload(others: Bench, task_id: str) -> None:
    others.redrive(task_id, Edit(payload=OTHERS_EDITED))


def redrives_and_it_dies_again(others: Bench, task_id: str) -> None:
    redrives(others, task_id)
    others.clock.advance("1s")
    others.dead_letter(others.claim(task_id))


def purges(others: Bench, task_id: str) -> None:
    others.purge(task_id)


def begins_anew(others: Bench, task_id: str) -> None:
    others.submit(id=task_id, payload=BIG)


def begins_anew_and_succeeds(others: Bench, task_id: str) -> None:
    begins_anew(others, task_id)
    others.complete(others.claim(task_id), a_result(OTHERS_RESULT))


def _taken(others: Bench, task_id: str) -> Claim:
    candidate = others.candidate(task_id)
    others.clock.advance(max(candidate.due_at - others.now, LEASE))
    claim = others.store.claim(others.candidate(task_id), a_grant(others.now))
    return claim or others.reclaim(_lapsed(others, task_id))


def _lapsed(others: Bench, task_id: str) -> Claim:
    lapsed = others.store.lapsed(others.candidate(task_id), now=others.now)
    assert lapsed is not None
    return lapsed


Meanwhile = Callable[[Bench, str], None]

ABOUT_A_HELD_TASK: Final[tuple[Meanwhile, ...]] = (
    takes_over,
    takes_over_and_succeeds,
    takes_over_and_fails,
    buries_redrives_and_claims,
    buries_and_purges,
    purges_and_begins_anew,
    cancels,
    cancels_and_begins_anew,
)
ABOUT_A_DEAD_TASK: Final[tuple[Meanwhile, ...]] = (
    redrives,
    redrives_with_another_payload,
    redrives_and_it_dies_again,
    purges,
    purges_and_begins_anew,
)
ABOUT_A_NEW_TASK: Final[tuple[Meanwhile, ...]] = (begins_anew, begins_anew_and_succeeds)

RACES: Final[tuple[tuple[Prepare, Meanwhile], ...]] = (
    *((call, other) for call in (complete, reschedule, dead_letter) for other in ABOUT_A_HELD_TASK),
    *(
        (call, other)
        for call in (reclaim, dead_letter_lapsed)
        for other in (heartbeats, *ABOUT_A_HELD_TASK)
    ),
    *((call, other) for call in (redrive, redrive_edited, purge) for other in ABOUT_A_DEAD_TASK),
    *(
        (cancel, other)
        for other in (takes_over, takes_over_and_succeeds, purges_and_begins_anew, cancels)
    ),
    *((call, other) for call in (submit, submit_many) for other in ABOUT_A_NEW_TASK),
    # A task that is being forgotten is taken over by nobody any more: whoever tries removes it.
    *((forget, other) for other in (cancels, cancels_and_begins_anew)),
    *(
        (forget_dead, other)
        for other in (redrives, redrives_with_another_payload, purges, purges_and_begins_anew)
    ),
)


def happens(meanwhile: Meanwhile, others: Bench, task_id: str) -> bool:
    """Somebody does it; False when he finds that it can't be done any more."""
    try:
        meanwhile(others, task_id)
    except (RdqError, StopIteration, AssertionError):
        return False
    return True
