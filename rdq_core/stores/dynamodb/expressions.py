"""The clauses of conditional writes, each under a name that says the situation and with the reason
why it is there.

    claim ── IS_WAITING · IS_DUE · IS_AS_SEEN · IS_READABLE         reclaim ── IS_HELD_BY_CALLER · IS_DUE
    settling, adopt ── IS_HELD_BY_CALLER                            cancel ── IS_LIVE · NAMES_SEEN_BODY
    lapse of a hand-over ── IS_HELD_BY_CALLER · IS_DUE ·            or NAMES_NO_BODY
    IS_HANDED_OVER
    redrive ── IS_DEAD · DIED_THEN · HAS_NOT_EXPIRED · IS_NOT_DONE  purge ── IS_DEAD · DIED_THEN · HAS_NOT_EXPIRED
    submit ── IS_ABSENT or HAS_EXPIRED                              configuration ── IS_UNCONFIGURED or
                                                                    IS_DECLARED_AS_READ · IS_OVERRIDDEN_AS_READ
    prepared submit ── the same as submit, IS_NOT_FORGOTTEN_SINCE   forget ── IS_THIS_LIFE · IS_DEAD or IS_NOT_DEAD
    tombstone ── IS_FORGOTTEN_NO_LATER
    pause ── IS_CONFIGURED · IS_NOT_DELETED                         audit ── IS_NOT_RECORDED
    deletion ── IS_CONFIGURED · IS_NOT_DELETING, then IS_DELETING_AS_READ · IS_NOT_DELETED; back again ──
    IS_DELETED_AS_READ; a look ── NOBODY_LOOKED_YET or LOOKED_AT_AS_READ
    slot ── SLOT_IS_FREE or SLOT_IS_AS_SEEN; its end ── SLOT_IS_OURS
    renewal ── BODY_IS_THERE · BODY_ENDS_SOONER, then BODY_IS_AS_SEEN or REFERENCES_ARE_AS_SEEN
    remains ── IS_OF_SEEN_LIFE
    awake ── AWAKE_ENDS_SOONER; a start ── IS_ASLEEP; asleep ── WAS_EVER_AWAKE
    rate limit ── NOBODY_TOOK_YET or IS_HANDED_OUT_AS_READ
    job ── IS_NEW_JOB · HAS_NEVER_ENDED, then JOB_IS_AS_READ        cursor key ── NO_SECRET_YET

The invariant: every write to a state row is composed of these and of nothing else, and looks them
up here when it is made. So a test can replace any one of them by `ALWAYS` and see which promise
breaks.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from rdq_core.stores.dynamodb.schema import Attr
from rdq_core.stores.dynamodb.values import Value

NameT = TypeVar("NameT", bound=str)

CLAUSES: Final[dict[str, str]] = {}
"""Every clause by its name: the one place where expressions get their text from."""

ALWAYS: Final = "attribute_exists(#task_id) OR attribute_not_exists(#task_id)"
"""A clause that holds of any item and of none."""


def _clause(name: str, expression: str) -> str:
    CLAUSES[name] = expression
    return name


IS_ABSENT: Final = _clause("IS_ABSENT", "attribute_not_exists(#task_id)")
"""Nothing is stored under this id: a submit never resets a task that has moved on."""

HAS_EXPIRED: Final = _clause("HAS_EXPIRED", "#expires_at <= :now_seconds")
"""Retention is over, and the row counts as absent: TTL removes items up to two days late."""

HAS_NOT_EXPIRED: Final = _clause(
    "HAS_NOT_EXPIRED", "attribute_not_exists(#expires_at) OR #expires_at > :now_seconds"
)
"""Retention isn't over: otherwise TTL, which is already on its way, would remove the task just sent
back.
"""

IS_FRESH: Final = _clause("IS_FRESH", "attribute_not_exists(#kind)")
"""The record's key is unused. Nobody else can have it: a used one means that we wrote it, and what
is published stands.
"""

IS_WAITING: Final = _clause("IS_WAITING", "#status = :pending")
"""Nobody holds the task and it hasn't ended. A lapsed lease is for a reclaim, which records the
lost attempt.
"""

IS_DUE: Final = _clause("IS_DUE", "#due_at <= :now")
"""Its time has come: the next attempt's, or the end of a lease. The index may show an earlier one
than the row has.
"""

IS_AS_SEEN: Final = _clause("IS_AS_SEEN", "#fencing_token = :seen_fence")
"""No claim since the index entry was read: an entry from before a whole attempt doesn't claim the
one after it.
"""

IS_READABLE: Final = _clause(
    "IS_READABLE",
    "attribute_type(#version, :numeric) AND #version BETWEEN :oldest_version AND :version"
    " AND attribute_type(#life, :string) AND attribute_type(#created_at, :numeric)"
    " AND attribute_type(#attempt_count, :numeric) AND attribute_type(#history_length, :numeric)"
    " AND attribute_type(#handler_ref, :string)",
)
"""Not written by a newer rdq nor damaged: what can't be read isn't touched either, so it is not
leased.
"""

IS_HELD_BY_CALLER: Final = _clause(
    "IS_HELD_BY_CALLER", "#status = :in_flight AND #claim_token = :token"
)
"""The task is in flight under the very token that the caller presents: the fence of every write
after a claim.
"""

IS_HANDED_OVER: Final = _clause("IS_HANDED_OVER", "attribute_exists(#handed_over)")
"""The claim was handed over and not adopted: one that was adopted ended as an attempt, which a
reclaim records.
"""

IS_EARLIER: Final = _clause("IS_EARLIER", "#due_at < :due_at")
"""The lease ends before the moment asked for: a heartbeat never shortens one."""

IS_LIVE: Final = _clause("IS_LIVE", "#status IN (:pending, :in_flight)")
"""It hasn't ended: what has ended can't be cancelled."""

IS_DEAD: Final = _clause("IS_DEAD", "#status = :dead")
"""It rests in the DLQ: nothing else can be sent back or purged."""

DIED_THEN: Final = _clause("DIED_THEN", "#completed_at = :dead_at")
"""It is the death that the operator has seen: one who decided on an earlier failure hasn't seen the
newer one.
"""

IS_NOT_DONE: Final = _clause("IS_NOT_DONE", "attribute_not_exists(#op_id) OR #op_id <> :op_id")
"""This very request hasn't redriven the task before: a page of a job that is run again sends
nothing back twice.
"""

BODY_IS_THERE: Final = _clause("BODY_IS_THERE", "attribute_exists(#kind)")
"""The body exists: an update of a missing one would make an empty body."""

BODY_ENDS_SOONER: Final = _clause("BODY_ENDS_SOONER", "#expires_at < :body_ends_at")
"""The body's end is before the new one: a renewal never shortens a life, nor gives an end to what
has none.
"""

NAMES_SEEN_BODY: Final = _clause("NAMES_SEEN_BODY", "#body_ref = :seen_body")
"""The row names the body that was made to outlive it: one that was edited since has another, which
wasn't.
"""

NAMES_NO_BODY: Final = _clause("NAMES_NO_BODY", "attribute_not_exists(#body_ref)")
"""The row still carries all it has: no edit has put a body beside it, which would have to outlive
it.
"""

BODY_IS_AS_SEEN: Final = _clause(
    "BODY_IS_AS_SEEN", "#body_ref = :seen_body AND #body_ends_at = :seen_end"
)
"""The row still names the body that was renewed, with the end that was read: an edited task has
another body, and one that stays for good has no end.
"""

REFERENCES_ARE_AS_SEEN: Final = _clause(
    "REFERENCES_ARE_AS_SEEN", "#references_end_at = :seen_references_end"
)
"""The row remembers the end of its references that was read: those of one that stays for good have
none any more.
"""

IS_OF_SEEN_LIFE: Final = _clause("IS_OF_SEEN_LIFE", "#life = :seen_life")
"""The entry is of the life that was found to be gone: the id's next life may have died since, and
put its own there.
"""

HAS_AN_END: Final = _clause("HAS_AN_END", "attribute_exists(#expires_at)")
"""The reference exists and would end: an update of a missing one would make an empty one that
nothing removes.
"""

IS_THIS_LIFE: Final = _clause("IS_THIS_LIFE", "#life = :life")
"""It is the task that was looked at: a later one under the same id was not asked to be forgotten or
cancelled, and nothing of it was made to live long enough.
"""

IS_NOT_DEAD: Final = _clause("IS_NOT_DEAD", "#status <> :dead")
"""It has no entry in the DLQ: one that has died in the meantime must not leave its entry behind."""

IS_FORGOTTEN_NO_LATER: Final = _clause(
    "IS_FORGOTTEN_NO_LATER", "attribute_not_exists(#forgotten_at) OR #forgotten_at < :forgotten_at"
)
"""No tombstone says a later moment: a forget that was held up doesn't take back another's."""

IS_NOT_FORGOTTEN_SINCE: Final = _clause(
    "IS_NOT_FORGOTTEN_SINCE", "attribute_not_exists(#forgotten_at) OR #forgotten_at < :since"
)
"""The target or requester wasn't forgotten since the task was prepared: a transaction can ask, so
it needs no check afterwards.
"""

IS_UNCONFIGURED: Final = _clause("IS_UNCONFIGURED", "attribute_not_exists(#revision)")
"""Nobody has configured the queue in the meantime."""

IS_CONFIGURED: Final = _clause("IS_CONFIGURED", "attribute_exists(#revision)")
"""The queue has a configuration: pausing a queue that isn't there doesn't make one."""

IS_DECLARED_AS_READ: Final = _clause("IS_DECLARED_AS_READ", "#revision = :seen_revision")
"""No deploy since the layers were read: what would be written was decided on what is there."""

IS_OVERRIDDEN_AS_READ: Final = _clause(
    "IS_OVERRIDDEN_AS_READ", "#override_revision = :seen_override_revision"
)
"""No override since the layers were read: it may have raised `shards_ever`, which must not go down.
"""

IS_NOT_DELETING: Final = _clause("IS_NOT_DELETING", "attribute_not_exists(#deleting_at)")
"""Its deletion hasn't begun: beginning it again would put off its end, and a tombstone isn't
deleted twice.
"""

IS_NOT_DELETED: Final = _clause("IS_NOT_DELETED", "attribute_not_exists(#deleted_at)")
"""It is no tombstone: what is deleted can't be paused, and its time of deletion stays."""

IS_DELETING_AS_READ: Final = _clause("IS_DELETING_AS_READ", "#deleting_at = :seen_deleting_at")
"""The very deletion whose end was found: nobody has declared the queue again since it was seen to
be empty.
"""

IS_DELETED_AS_READ: Final = _clause("IS_DELETED_AS_READ", "#deleted_at = :seen_deleted_at")
"""The very tombstone in which a task was found: nobody has declared the queue again, or opened it,
in between.
"""

NOBODY_LOOKED_YET: Final = _clause("NOBODY_LOOKED_YET", "attribute_not_exists(#looked_at)")
"""No host has looked for tasks in the queue that is leaving."""

LOOKED_AT_AS_READ: Final = _clause("LOOKED_AT_AS_READ", "#looked_at = :seen_looked_at")
"""No host has looked since: of many sweepers one looks."""

IS_NOT_RECORDED: Final = _clause("IS_NOT_RECORDED", "attribute_not_exists(#pk)")
"""Nothing is stored under this record's id: what was recorded is never overwritten."""

IS_NEW_JOB: Final = _clause("IS_NEW_JOB", "attribute_not_exists(#pk)")
"""No job has this id: one that is under way is not begun again from the start."""

HAS_NEVER_ENDED: Final = _clause("HAS_NEVER_ENDED", "attribute_not_exists(#pk)")
"""No job of this id has been filed: a request to begin it that comes late doesn't begin it anew."""

JOB_IS_AS_READ: Final = _clause("JOB_IS_AS_READ", "#revision = :seen_revision")
"""Nobody has gone on with the job since it was read: a page is counted once, and a cancelled job
stays so.
"""

NO_SECRET_YET: Final = _clause("NO_SECRET_YET", "attribute_not_exists(#pk)")
"""Nobody has made the key of page cursors: another one would make all cursors stale that are about.
"""

NOBODY_TOOK_YET: Final = _clause("NOBODY_TOOK_YET", "attribute_not_exists(#handed_out_until)")
"""No start was ever handed out under this limit."""

AWAKE_ENDS_SOONER: Final = _clause(
    "AWAKE_ENDS_SOONER", "attribute_not_exists(#awake_until) OR #awake_until < :until"
)
"""No sweep is awake for longer: one whose clock is behind doesn't take back what another says."""

IS_ASLEEP: Final = _clause(
    "IS_ASLEEP", "attribute_not_exists(#awake_until) OR #awake_until <= :now"
)
"""No sweep is awake, and none was just started: of many records of new work one starts a sweep."""

WAS_EVER_AWAKE: Final = _clause("WAS_EVER_AWAKE", "attribute_exists(#awake_until)")
"""There is something to take back: an update of a missing item would make one."""

IS_HANDED_OUT_AS_READ: Final = _clause("IS_HANDED_OUT_AS_READ", "#handed_out_until = :seen_until")
"""Nobody took starts since the bucket was read: two sweepers never hand out the same ones."""

SLOT_IS_FREE: Final = _clause("SLOT_IS_FREE", "attribute_not_exists(#task_id)")
"""No task has taken the concurrency key's slot."""

SLOT_IS_AS_SEEN: Final = _clause(
    "SLOT_IS_AS_SEEN", "#task_id = :slot_task AND #fencing_token = :slot_fence"
)
"""The slot still names the claim whose task was found not to be in flight: nobody else has taken it
over.
"""

SLOT_IS_OURS: Final = _clause("SLOT_IS_OURS", "#task_id = :slot_task AND #fencing_token <= :fence")
"""The slot names the claim that was settled: a late clean-up doesn't free the slot of a claim that
came after.
"""


def all_of(*names: str) -> str:
    """A condition that holds when each of these clauses does."""
    return " AND ".join(
        CLAUSES[name] if len(names) == 1 else f"({CLAUSES[name]})" for name in names
    )


def any_of(*names: str) -> str:
    """A condition that holds when one of these clauses does."""
    return " OR ".join(f"({CLAUSES[name]})" for name in names)


@lru_cache(maxsize=512)
def aliases(*expressions: str) -> dict[str, str]:
    """`ExpressionAttributeNames` for the aliases that are used, no more: DynamoDB refuses unused
    ones.
    """
    used = sorted(set(re.findall(r"#(\w+)", " ".join(expressions))))
    return {f"#{name}": str(Attr[name.upper()]) for name in used}


@lru_cache(maxsize=512)
def _placeholders(*expressions: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r":\w+", " ".join(expressions)))))


def bound(values: Mapping[str, Value], *expressions: str) -> dict[str, Value]:
    """`ExpressionAttributeValues` for the placeholders that are used. A missing one is a KeyError:
    our own bug.
    """
    return {name: values[name] for name in _placeholders(*expressions)}


def expressed(request: dict[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """The request with the names and values that its expressions use."""
    texts = tuple(value for name, value in request.items() if name.endswith("Expression"))
    known = bound(values, *texts)
    named = {**request, "ExpressionAttributeNames": dict(aliases(*texts))}
    return {**named, "ExpressionAttributeValues": known} if known else named


def change(
    sets: Mapping[NameT, Value], removes: Sequence[Attr] = ()
) -> tuple[str, dict[str, Value]]:
    """An update expression that sets and removes attributes, and its values."""
    new = {f":new_{Attr(name).name.lower()}": value for name, value in sets.items()}
    assignments = ", ".join(
        f"{Attr(name).alias} = {value}" for name, value in zip(sets, new, strict=True)
    )
    removed = ", ".join(attr.alias for attr in removes)
    parts = (f"SET {assignments}" if sets else "", f"REMOVE {removed}" if removes else "")
    return " ".join(part for part in parts if part), new
