"""Whatever is done in whatever order: DynamoDB's store and the one in memory tell the same story,
step by step.

Both are driven by the same random steps, with the same ids, tokens and clock. After each step
everything that anybody can see must be equal, and so must the answer or the refusal.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Edit
from rdq_core.engine.ports import Candidate
from rdq_core.errors import LeaseLost, RdqError
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.contract.factories import a_grant, a_lapse, a_result, a_success, a_task, noise
from tests.contract.conftest import in_memory, on_tables
from tests.support.engines import Engine
from tests.support.stores import dynamo_on

IDS = [f"{number:026d}" for number in range(2)]
LATEST = -1
SIZES = st.sampled_from([0, 20, 2000])
SPANS = st.sampled_from(
    [timedelta(0), timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=25)]
)
KEPT = st.sampled_from([None, timedelta(hours=1), timedelta(days=90)])


@dataclass
class Hand:
    """What one claimant or operator remembers, of one store: claims and entries, some of them
    outdated.
    """

    bench: Bench
    claims: dict[str, list[Claim]]
    entries: dict[str, list[DeadEntry]]
    settled: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, bench: Bench) -> "Hand":
        return cls(bench, {task_id: [] for task_id in IDS}, {task_id: [] for task_id in IDS})


Step = Callable[[Hand, str], object]
"""One step: what it does by whose hand, and a name that no other step has, for tokens and requests.
"""


def submit(task_id: str, size: int, after: timedelta, queue: str) -> Step:
    def step(hand: Hand, name: str) -> object:
        task = a_task(
            id=task_id, queue=queue, payload=noise(size), next_attempt_at=hand.bench.now + after
        )
        return hand.bench.store.submit(task, shards=1)

    return step


def claim(task_id: str, wait: bool) -> Step:
    """Somebody claims it, or takes it over, now or when it is due."""

    def step(hand: Hand, name: str) -> object:
        for candidate in hand.bench.candidates(ahead=timedelta(days=400)):
            if candidate.task_id == task_id:
                if wait:
                    hand.bench.clock.advance(max(candidate.due_at - hand.bench.now, timedelta(0)))
                return remembered(hand, claimed(hand.bench, candidate, name))
        return "not in the index"

    return step


def claimed(bench: Bench, candidate: Candidate, token: str) -> Claim | None:
    grant = a_grant(bench.now, token=token)
    lapsed = bench.store.lapsed(candidate, now=bench.now)
    return (
        bench.store.reclaim(lapsed, a_lapse(lapsed), grant)
        if lapsed
        else bench.store.claim(candidate, grant)
    )


def settle(task_id: str, verb: str, which: int, size: int, keep: timedelta | None) -> Step:
    def step(hand: Hand, name: str) -> object:
        if not (held := hand.claims[task_id]):
            return "never claimed"
        claim = held[which % len(held)]
        if claim.token in hand.settled and verb != "heartbeat":
            # It may be the repetition after a lost answer, so being told of success is a true
            # answer too.
            with suppress(LeaseLost):
                do(hand.bench, verb, claim, size, keep)
            return "settled by this claim already"
        answer = do(hand.bench, verb, claim, size, keep)
        if verb not in ("heartbeat", "dead-letter lapsed"):
            hand.settled.add(claim.token)
        return answer

    return step


def do(bench: Bench, verb: str, claim: Claim, size: int, keep: timedelta | None) -> object:
    match verb:
        case "heartbeat":
            bench.store.heartbeat(claim, bench.now + (keep or timedelta(minutes=2)))
        case "complete":
            success, until = a_success(claim, bench.now), bench.now + (keep or timedelta(hours=24))
            bench.store.complete(
                claim, success, a_result(noise(size)), now=bench.now, expires_at=until
            )
        case "reschedule":
            bench.reschedule(claim, after=timedelta(seconds=size % 7))
        case "release":
            bench.release(claim)
        case "dead-letter":
            bench.dead_letter(claim, keep=keep)
        case "dead-letter unrun":
            bench.dead_letter_unrun(claim)
        case "dead-letter lapsed":
            return bench.dead_letter_lapsed(claim)
    return None


VERBS = [
    "heartbeat",
    "complete",
    "reschedule",
    "release",
    "dead-letter",
    "dead-letter unrun",
    "dead-letter lapsed",
]


def operate(task_id: str, verb: str, which: int, edit: Edit) -> Step:
    def step(hand: Hand, name: str) -> object:
        seen, bench = hand.entries[task_id], hand.bench
        if verb == "cancel":
            return bench.store.cancel(
                task_id, now=bench.now, op_id=name, expires_at=bench.now + timedelta(hours=24)
            )
        if which == LATEST and (present := bench.store.dead_entry(task_id)):
            seen.append(present)
        if not seen:
            return "never seen dead"
        entry = seen[which % len(seen)]
        if verb == "purge":
            bench.store.purge(entry, now=bench.now, op_id=name)
            return "purged"
        return bench.store.redrive(entry, edit, now=bench.now, op_id=name, shards=1)

    return step


def advance(span: timedelta) -> Step:
    # At least a millisecond: a death is known by its moment.
    return lambda hand, _name: hand.bench.clock.advance(span + timedelta(milliseconds=1))


EDITS = st.builds(
    Edit,
    handler_ref=st.sampled_from([None, "other"]),
    handler_version=st.sampled_from([None, "v2"]),
    unpin=st.booleans(),
    payload=st.one_of(st.none(), SIZES.map(noise)),
    payload_content_type=st.sampled_from([None, "text/csv"]),
)
A_TASK = st.sampled_from(IDS)
WHICH = st.sampled_from([LATEST, LATEST, LATEST, -2, 0])
SUBMIT = st.builds(submit, A_TASK, SIZES, SPANS, st.sampled_from(["billing"] * 9 + ["email"]))
STEPS = st.one_of(
    SUBMIT,
    st.builds(claim, A_TASK, st.sampled_from([True, True, True, False])),
    st.builds(settle, A_TASK, st.sampled_from(VERBS), WHICH, SIZES, KEPT),
    st.builds(settle, A_TASK, st.sampled_from(["dead-letter", "reschedule"]), WHICH, SIZES, KEPT),
    st.builds(
        operate,
        A_TASK,
        st.sampled_from(["cancel", "redrive", "redrive", "redrive", "purge"]),
        WHICH,
        EDITS,
    ),
    st.builds(advance, SPANS),
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=20, max_size=50))
def test_both_stores_tell_the_same_story(moto: Engine, steps: list[Step]) -> None:
    empty(moto)
    steps = [*(submit(task_id, 20, timedelta(0), "billing") for task_id in IDS), *steps]
    hands = [Hand.of(in_memory()), Hand.of(on_tables(dynamo_on(moto)))]
    for number, step in enumerate(steps):
        memory, dynamo = (outcome(step, hand, f"step-{number}") for hand in hands)
        assert dynamo == memory
        memory, dynamo = ([hand.bench.seen(task_id) for task_id in IDS] for hand in hands)
        assert dynamo == memory
    memory, dynamo = (
        (hand.bench.dead_entries(), hand.bench.store.counts("billing")) for hand in hands
    )
    assert dynamo == memory


def outcome(step: Step, hand: Hand, name: str) -> object:
    """What a step answers, as far as stores must agree on it; of a refusal, its kind."""
    try:
        return comparable(step(hand, name))
    except RdqError as refused:
        return type(refused)


def comparable(answer: Any) -> object:
    return claim_as_seen(answer) if isinstance(answer, Claim) else answer


def claim_as_seen(claim: Claim) -> object:
    """A claim without what is the store's own affair, and without what it need not have loaded
    yet.
    """
    task = replace(claim.task, payload=b"", payload_content_type="", headers={}, unknown={})
    return (
        task,
        claim.token,
        claim.fencing_token,
        claim.claimed_at,
        claim.lease_expires_at,
        claim.history_length,
    )


def remembered(hand: Hand, claim: Claim | None) -> Claim | None:
    if claim is not None:
        hand.claims[claim.task.id].append(claim)
    return claim


def empty(moto: Engine) -> None:
    from moto.backends import get_backend

    get_backend("dynamodb").reset()
