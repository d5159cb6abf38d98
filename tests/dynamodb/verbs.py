"""Every verb of the store, prepared: each function gives the call that remains to be made."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lease import Claim, once_more
from rdq_core.domain.lifecycle import NO_EDIT, Edit, Result
from rdq_core.domain.task import Failure
from tests.dynamodb.world import FAILURE, SHARDS, TASK_ID, World, a_failed_attempt

HOUR = timedelta(hours=1)
Act = Callable[[], object]
Prepare = Callable[[World], Act]


def noise(size: int) -> bytes:
    """Bytes that no compression helps with; the same ones each time."""
    return Random(size).randbytes(size)


def seen_dead(world: World) -> DeadEntry:
    entry = world.store.dead_entry(TASK_ID)
    assert entry is not None
    return entry


def submit(world: World) -> Act:
    return lambda: world.submit(payload=b"x" * 300)


def claim(world: World) -> Act:
    world.submit(payload=b"x" * 300)
    seen, grant = world.candidate(), world.grant()
    return lambda: world.store.claim(seen, grant)


def lost_claim(world: World) -> Act:
    world.submit()
    seen = world.candidate()
    world.store.claim(seen, world.grant())
    return lambda: world.store.claim(seen, world.grant())


def complete(world: World) -> Act:
    claim = world.claimed(payload=b"x" * 300)
    result = Result(content=b"done")
    return lambda: world.store.complete(
        claim, world.succeeded(claim), result, now=world.now, expires_at=world.now + HOUR
    )


def heartbeat(world: World) -> Act:
    claim = world.claimed()
    return lambda: world.store.heartbeat(claim, world.now + HOUR)


def release(world: World) -> Act:
    claim = world.claimed()
    return lambda: world.store.release(claim, Failure("worker_shutdown"), due_at=world.now)


def adopt(world: World) -> Act:
    handed = handed_over(world)
    world.clock.advance("1s")
    grant = world.grant()
    return lambda: world.store.adopt(TASK_ID, handed.token, grant)


def release_lapsed(world: World) -> Act:
    handed_over(world)
    lapsed, grant = world.lapse(), world.grant()
    unreached = once_more(None, world.now, handed_over=True)
    failure = Failure("task_unavailable")
    return lambda: world.store.release_lapsed(
        lapsed, failure, grant, due_at=world.now + HOUR, unreached=unreached
    )


def handed_over(world: World) -> Claim:
    world.submit(payload=b"x" * 300)
    claim = world.store.claim(world.candidate(), replace(world.grant(), hands_over=True))
    assert claim is not None
    return claim


def reschedule(world: World) -> Act:
    claim = world.claimed(payload=b"x" * 300)
    return lambda: world.store.reschedule(
        claim, world.failed(claim), FAILURE, due_at=world.now + HOUR
    )


def reclaim(world: World) -> Act:
    world.claimed()
    lapsed, grant = world.lapse(), world.grant()
    return lambda: world.store.reclaim(lapsed, world.lost(lapsed), grant)


def dead_letter(world: World) -> Act:
    claim = world.claimed(payload=b"x" * 300)
    return lambda: world.bury(claim)


def cancel(world: World) -> Act:
    world.submit()
    return lambda: world.store.cancel(
        TASK_ID, now=world.now, op_id="op", expires_at=world.now + HOUR
    )


def redrive(world: World) -> Act:
    world.dead(payload=b"x" * 300)
    entry = seen_dead(world)
    return lambda: world.store.redrive(entry, NO_EDIT, now=world.now, op_id="op", shards=SHARDS)


def purge(world: World) -> Act:
    claim = world.claimed()
    world.store.dead_letter(
        claim, None, FAILURE, now=world.now, fingerprint="v1:abc", expires_at=None
    )
    entry = seen_dead(world)
    return lambda: world.store.purge(entry, now=world.now, op_id="op")


def submit_outside(world: World) -> Act:
    earlier = tuple(a_failed_attempt(number, world.now, None) for number in (1, 2))
    return lambda: world.submit(payload=noise(5000), attempts=earlier)


def complete_outside(world: World) -> Act:
    claim = world.claimed(payload=noise(5000))
    result = Result(content=noise(3000), content_type="text/plain")
    return lambda: world.store.complete(
        claim, world.succeeded(claim), result, now=world.now, expires_at=world.now + HOUR
    )


def dead_letter_for_ever(world: World) -> Act:
    claim = world.claimed(payload=noise(5000))
    return lambda: world.bury(claim, expires_at=None)


def dead_letter_lapsed(world: World) -> Act:
    world.claimed()
    lapsed, grant = world.lapse(), world.grant()
    failure = Failure("task_lease_expired")
    return lambda: world.store.dead_letter_lapsed(
        lapsed, world.lost(lapsed), failure, grant, fingerprint="v1:a", expires_at=None
    )


def redrive_edited(world: World) -> Act:
    world.dead(payload=noise(5000))
    entry, edit = seen_dead(world), Edit(payload=noise(6000), handler_ref="mended")
    return lambda: world.store.redrive(entry, edit, now=world.now, op_id="op", shards=SHARDS)


def purge_all(world: World) -> Act:
    claim = world.claimed(payload=noise(5000))
    world.store.reschedule(claim, world.failed(claim), FAILURE, due_at=world.now)
    world.bury(world.claim())
    entry = seen_dead(world)
    return lambda: world.store.purge(entry, now=world.now, op_id="op")


EVERY: tuple[Prepare, ...] = (
    submit,
    submit_outside,
    claim,
    heartbeat,
    complete,
    complete_outside,
    release,
    adopt,
    release_lapsed,
    reschedule,
    reclaim,
    dead_letter,
    dead_letter_for_ever,
    dead_letter_lapsed,
    cancel,
    redrive,
    redrive_edited,
    purge,
    purge_all,
)
"""Every verb, and the ways in which some of them write more than the row. A claim that is lost is
not among them.
"""


def named(prepare: Prepare) -> str:
    return prepare.__name__
