"""The clauses of conditional writes: each has a name that states the situation, and its reason.

    claim             IS_WAITING · IS_DUE · IS_AS_SEEN · IS_READABLE
    reclaim           IS_HELD_BY_CALLER · IS_DUE
    adopt, settle     IS_HELD_BY_CALLER
    heartbeat         IS_HELD_BY_CALLER · IS_EARLIER
    lapsed hand-over  IS_HELD_BY_CALLER · IS_DUE · IS_HANDED_OVER
    concurrency key   KEY_IS_FREE or KEY_IS_AS_SEEN; freed: KEY_IS_HELD_BY_CLAIM
    submit            IS_ABSENT or HAS_EXPIRED; prepared: and IS_NOT_FORGOTTEN_SINCE
    record, body      IS_FRESH
    renewal           BODY_IS_THERE · BODY_ENDS_SOONER, then BODY_IS_AS_SEEN; HAS_AN_END, then
                      REFERENCES_ARE_AS_SEEN
    cancel            IS_THIS_LIFE · IS_LIVE · NAMES_SEEN_BODY or NAMES_NO_BODY
    redrive           IS_DEAD · DIED_THEN · HAS_NOT_EXPIRED · IS_NOT_DONE
    purge             IS_DEAD · DIED_THEN · HAS_NOT_EXPIRED
    forget            IS_FORGOTTEN_NO_LATER, then IS_THIS_LIFE · IS_DEAD or IS_NOT_DEAD
    orphaned entry    IS_OF_SEEN_LIFE
    configuration     IS_UNCONFIGURED, or IS_DECLARED_AS_READ · IS_OVERRIDDEN_AS_READ
    pause             IS_CONFIGURED · IS_NOT_DELETED
    queue deletion    IS_CONFIGURED · IS_NOT_DELETING, then IS_DELETING_AS_READ · IS_NOT_DELETED;
                      NEVER_LOOKED_AT or LOOKED_AT_AS_READ; reopened: IS_DELETED_AS_READ
    reservation       RESERVATION_ENDS_SOONER; acquire: IS_NOT_RESERVED; release: IS_RESERVED
    rate limit        NOTHING_HANDED_OUT or HANDED_OUT_AS_READ
    job               IS_NEW_JOB · HAS_NEVER_ENDED, then JOB_IS_AS_READ
    audit, cursor key IS_NOT_RECORDED; NO_SECRET_YET

The invariant: conditions are composed of these clauses only, looked up when a request is built. So
a test can replace any one of them by `ALWAYS` and see which promise breaks (tests/mutations.py).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from rdq_core.domain.envelope import VERSION
from rdq_core.domain.task import Status
from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Value, moment, number, seconds_down, text

NameT = TypeVar("NameT", bound=str)

CLAUSES: Final[dict[str, str]] = {}
"""The expression of every clause, by its name."""

ALWAYS: Final = "attribute_exists(#task_id) OR attribute_not_exists(#task_id)"
"""A clause that every item satisfies, and a missing one too."""


def _clause(name: str, expression: str) -> str:
    CLAUSES[name] = expression
    return name


# -- tasks -----------------------------------------------------------------------------------------

IS_ABSENT: Final = _clause("IS_ABSENT", "attribute_not_exists(#task_id)")
"""Nothing is stored under this id: a submit never resets a task that exists."""

HAS_EXPIRED: Final = _clause("HAS_EXPIRED", "#expires_at <= :now_seconds")
"""Retention is over, so the row counts as absent. TTL removes items within a few days of their end,
not at once ("Using time to live").
"""

HAS_NOT_EXPIRED: Final = _clause(
    "HAS_NOT_EXPIRED", "attribute_not_exists(#expires_at) OR #expires_at > :now_seconds"
)
"""Retention is not over: otherwise TTL may be about to remove the task that was just redriven."""

IS_FRESH: Final = _clause("IS_FRESH", "attribute_not_exists(#kind)")
"""The key of the record or body is unused. No other writer can have that key, so an item under it
was written by us before, and may be published by now: it stands.
"""

IS_WAITING: Final = _clause("IS_WAITING", "#status = :pending")
"""No worker holds the task and it has not ended. A lapsed lease needs a reclaim, which records the
lost attempt.
"""

IS_DUE: Final = _clause("IS_DUE", "#due_at <= :now")
"""The next attempt is due, or the lease has ended. The index is eventually consistent and may show
an earlier time than the row has.
"""

IS_AS_SEEN: Final = _clause("IS_AS_SEEN", "#fencing_token = :seen_fence")
"""No claim since the index entry was read: an entry from before a whole attempt does not claim the
next one.
"""

IS_READABLE: Final = _clause(
    "IS_READABLE",
    "attribute_type(#version, :numeric) AND #version BETWEEN :oldest_version AND :version"
    " AND attribute_type(#life, :string) AND attribute_type(#created_at, :numeric)"
    " AND attribute_type(#attempt_count, :numeric) AND attribute_type(#history_length, :numeric)"
    " AND attribute_type(#handler_ref, :string)",
)
"""The row is neither damaged nor written by a newer rdq: a row that this version cannot read is not
leased, and stays as it is.
"""

IS_HELD_BY_CALLER: Final = _clause(
    "IS_HELD_BY_CALLER", "#status = :in_flight AND #claim_token = :token"
)
"""The task is in flight under the caller's token: the fence of every write after a claim."""

IS_HANDED_OVER: Final = _clause("IS_HANDED_OVER", "attribute_exists(#handed_over)")
"""The claim was handed over and never adopted. An adopted one ended as an attempt, which a reclaim
records.
"""

IS_EARLIER: Final = _clause("IS_EARLIER", "#due_at < :due_at")
"""The lease ends before the requested time: a heartbeat never shortens a lease."""

IS_LIVE: Final = _clause("IS_LIVE", "#status IN (:pending, :in_flight)")
"""The task has not ended, so it can be cancelled."""

IS_DEAD: Final = _clause("IS_DEAD", "#status = :dead")
"""The task is in the DLQ, so it can be redriven or purged."""

DIED_THEN: Final = _clause("DIED_THEN", "#completed_at = :dead_at")
"""It is the death that the operator has seen: a decision about an earlier failure does not apply to
a newer one.
"""

IS_NOT_DONE: Final = _clause("IS_NOT_DONE", "attribute_not_exists(#op_id) OR #op_id <> :op_id")
"""This very request has not redriven the task before: a page of a job that is repeated redrives no
task twice.
"""

IS_THIS_LIFE: Final = _clause("IS_THIS_LIFE", "#life = :life")
"""It is the task that was read: a later task under the same id is neither forgotten nor cancelled
with it.
"""

IS_NOT_DEAD: Final = _clause("IS_NOT_DEAD", "#status <> :dead")
"""The task has no DLQ entry: a task that has died in the meantime must not leave its entry behind.
"""

IS_OF_SEEN_LIFE: Final = _clause("IS_OF_SEEN_LIFE", "#life = :seen_life")
"""The DLQ entry belongs to the life that was found to be gone: the id's next life may have died
since, and put an entry of its own.
"""

# -- bodies and references -------------------------------------------------------------------------

BODY_IS_THERE: Final = _clause("BODY_IS_THERE", "attribute_exists(#kind)")
"""The body exists: updating a missing item would create an empty body."""

BODY_ENDS_SOONER: Final = _clause("BODY_ENDS_SOONER", "#expires_at < :body_ends_at")
"""The item expires before the new end: a renewal never shortens a life, and gives no end to an item
that has none.
"""

NAMES_SEEN_BODY: Final = _clause("NAMES_SEEN_BODY", "#body_ref = :seen_body")
"""The row names the body that was extended: an edit since then has put another one, which was not.
"""

NAMES_NO_BODY: Final = _clause("NAMES_NO_BODY", "attribute_not_exists(#body_ref)")
"""The row still has no body outside: an edit may have put one, which would have to be extended."""

BODY_IS_AS_SEEN: Final = _clause(
    "BODY_IS_AS_SEEN", "#body_ref = :seen_body AND #body_ends_at = :seen_end"
)
"""The row names the renewed body with the end that was read: an edited task has another body, and
one that never expires has no end.
"""

REFERENCES_ARE_AS_SEEN: Final = _clause(
    "REFERENCES_ARE_AS_SEEN", "#references_end_at = :seen_references_end"
)
"""The row has the end of its references that was read: those of a task that never expires have lost
theirs.
"""

HAS_AN_END: Final = _clause("HAS_AN_END", "attribute_exists(#expires_at)")
"""The reference exists and expires: updating a missing item would create one that nothing removes.
"""

IS_FORGOTTEN_NO_LATER: Final = _clause(
    "IS_FORGOTTEN_NO_LATER", "attribute_not_exists(#forgotten_at) OR #forgotten_at < :forgotten_at"
)
"""No tombstone has a later time: a delayed forget does not undo a later one."""

IS_NOT_FORGOTTEN_SINCE: Final = _clause(
    "IS_NOT_FORGOTTEN_SINCE", "attribute_not_exists(#forgotten_at) OR #forgotten_at < :since"
)
"""The target or requester was not forgotten since the task was prepared. Being part of the
transaction, it needs no read of the tombstone afterwards.
"""

# -- concurrency keys ------------------------------------------------------------------------------

KEY_IS_FREE: Final = _clause("KEY_IS_FREE", "attribute_not_exists(#task_id)")
"""No claim holds the concurrency key."""

KEY_IS_AS_SEEN: Final = _clause(
    "KEY_IS_AS_SEEN", "#task_id = :key_task AND #fencing_token = :key_fence"
)
"""The key still names the claim whose task was found not to be in flight: no other claim has taken
it over.
"""

KEY_IS_HELD_BY_CLAIM: Final = _clause(
    "KEY_IS_HELD_BY_CLAIM", "#task_id = :key_task AND #fencing_token <= :fence"
)
"""The key names the claim that was settled: a delayed clean-up does not free it for a later claim.
"""

# -- queues ----------------------------------------------------------------------------------------

IS_UNCONFIGURED: Final = _clause("IS_UNCONFIGURED", "attribute_not_exists(#revision)")
"""The queue has still no configuration."""

IS_CONFIGURED: Final = _clause("IS_CONFIGURED", "attribute_exists(#revision)")
"""The queue has a configuration: pausing a queue that does not exist creates none."""

IS_DECLARED_AS_READ: Final = _clause("IS_DECLARED_AS_READ", "#revision = :seen_revision")
"""No deploy since the layers were read: what is written was computed from them."""

IS_OVERRIDDEN_AS_READ: Final = _clause(
    "IS_OVERRIDDEN_AS_READ", "#override_revision = :seen_override_revision"
)
"""No override since the layers were read: it may have raised `shards_ever`, which must not go down.
"""

IS_NOT_DELETING: Final = _clause("IS_NOT_DELETING", "attribute_not_exists(#deleting_at)")
"""The deletion has not begun: beginning it again would postpone its end, and a tombstone is not
deleted twice.
"""

IS_NOT_DELETED: Final = _clause("IS_NOT_DELETED", "attribute_not_exists(#deleted_at)")
"""The queue is not a tombstone: a deleted queue cannot be paused, and its time of deletion stays.
"""

IS_DELETING_AS_READ: Final = _clause("IS_DELETING_AS_READ", "#deleting_at = :seen_deleting_at")
"""It is the deletion that was read: the queue has not been declared again since it was found empty.
"""

IS_DELETED_AS_READ: Final = _clause("IS_DELETED_AS_READ", "#deleted_at = :seen_deleted_at")
"""It is the tombstone in whose queue a task was found: the queue has been neither declared nor
reopened since.
"""

NEVER_LOOKED_AT: Final = _clause("NEVER_LOOKED_AT", "attribute_not_exists(#looked_at)")
"""No host has looked for tasks in the queue that is being deleted."""

LOOKED_AT_AS_READ: Final = _clause("LOOKED_AT_AS_READ", "#looked_at = :seen_looked_at")
"""No host has looked since: of many sweepers one looks."""

# -- reservations, rates, jobs, audit --------------------------------------------------------------

RESERVATION_ENDS_SOONER: Final = _clause(
    "RESERVATION_ENDS_SOONER",
    "attribute_not_exists(#reserved_until) OR #reserved_until < :until",
)
"""The reservation ends before the new end: a sweep whose clock is slow does not shorten another's.
"""

IS_NOT_RESERVED: Final = _clause(
    "IS_NOT_RESERVED", "attribute_not_exists(#reserved_until) OR #reserved_until <= :now"
)
"""No sweep has the queue reserved: of many records of new work, one starts a sweep."""

IS_RESERVED: Final = _clause("IS_RESERVED", "attribute_exists(#reserved_until)")
"""There is a reservation to release: updating a missing item would create one."""

NOTHING_HANDED_OUT: Final = _clause("NOTHING_HANDED_OUT", "attribute_not_exists(#handed_out_until)")
"""No start was ever handed out under this rate limit."""

HANDED_OUT_AS_READ: Final = _clause("HANDED_OUT_AS_READ", "#handed_out_until = :seen_until")
"""No starts were handed out since the bucket was read: two sweepers never hand out the same ones.
"""

IS_NEW_JOB: Final = _clause("IS_NEW_JOB", "attribute_not_exists(#pk)")
"""No open job has this id: a job in progress is not begun again from the start."""

HAS_NEVER_ENDED: Final = _clause("HAS_NEVER_ENDED", "attribute_not_exists(#pk)")
"""No job of this id has been filed as ended: a delayed request to begin it does not begin it again.
"""

JOB_IS_AS_READ: Final = _clause("JOB_IS_AS_READ", "#revision = :seen_revision")
"""The job has not changed since it was read: a page is counted once, and a cancelled job stays
cancelled.
"""

IS_NOT_RECORDED: Final = _clause("IS_NOT_RECORDED", "attribute_not_exists(#pk)")
"""Nothing is stored under this record's id: an audit record is never overwritten."""

NO_SECRET_YET: Final = _clause("NO_SECRET_YET", "attribute_not_exists(#pk)")
"""There is no key for page cursors: a second one would invalidate all cursors in use."""

# -- composing requests ----------------------------------------------------------------------------

_CONSTANTS: Final[Mapping[str, Value]] = {
    ":pending": text(Status.PENDING),
    ":in_flight": text(Status.IN_FLIGHT),
    ":dead": text(Status.DEAD),
    ":oldest_version": number(1),
    ":version": number(VERSION),
    ":string": text("S"),
    ":numeric": text("N"),
}


def values_at(now: datetime) -> dict[str, Value]:
    """The present time, as conditions compare it with due times and with ends of retention."""
    return {":now": moment(now), ":now_seconds": number(seconds_down(now))}


def all_of(*names: str) -> str:
    """A condition that holds when each of these clauses does."""
    # In parentheses, because AND binds more tightly than the OR inside of some clauses.
    return " AND ".join(
        CLAUSES[name] if len(names) == 1 else f"({CLAUSES[name]})" for name in names
    )


def any_of(*names: str) -> str:
    """A condition that holds when one of these clauses does."""
    return " OR ".join(f"({CLAUSES[name]})" for name in names)


def change(
    sets: Mapping[NameT, Value], removes: Sequence[Attr] = ()
) -> tuple[str, dict[str, Value]]:
    """An update expression that sets and removes attributes, and its values."""
    # Named after their attributes, so that they never clash with the placeholders of a condition.
    expression, placeholders = _update_expression(tuple(sets), tuple(removes))
    return expression, dict(zip(placeholders, sets.values(), strict=True))


_EXPRESSIONS: Final = (
    "KeyConditionExpression",
    "FilterExpression",
    "ProjectionExpression",
    "ConditionExpression",
    "UpdateExpression",
)


def expressed(request: dict[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """The request with the names and values that its expressions use, and no others: DynamoDB
    refuses unused ones. A missing value is a KeyError, which is a bug here.
    """
    texts = tuple(filter(None, map(request.get, _EXPRESSIONS)))
    named = {**request, "ExpressionAttributeNames": dict(aliases(*texts))}
    used = {
        name: values[name] if name in values else _CONSTANTS[name] for name in _placeholders(*texts)
    }
    return {**named, "ExpressionAttributeValues": used} if used else named


# A store sends a few dozen different expressions, over and over: building them once is what makes
# a request cheap.


@lru_cache(maxsize=512)
def aliases(*expressions: str) -> dict[str, str]:
    """`ExpressionAttributeNames` for the aliases that these expressions use."""
    used = sorted(set(re.findall(r"#(\w+)", " ".join(expressions))))
    return {f"#{name}": str(Attr[name.upper()]) for name in used}


@lru_cache(maxsize=512)
def _placeholders(*expressions: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r":\w+", " ".join(expressions)))))


@lru_cache(maxsize=512)
def _update_expression(
    sets: tuple[str, ...], removes: tuple[Attr, ...]
) -> tuple[str, tuple[str, ...]]:
    placeholders = tuple(f":new_{Attr(name).name.lower()}" for name in sets)
    assignments = ", ".join(
        f"{Attr(name).alias} = {value}" for name, value in zip(sets, placeholders, strict=True)
    )
    removed = ", ".join(attr.alias for attr in removes)
    parts = (f"SET {assignments}" if sets else "", f"REMOVE {removed}" if removes else "")
    return " ".join(part for part in parts if part), placeholders
