"""Taking a candidate: the claim of waiting work, and the reclaim of work whose holder let its lease
lapse.
"""

from datetime import datetime

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import Attempt, Code, Outcome, own_error
from rdq_core.domain.backoff import delay, next_attempt_at
from rdq_core.domain.fingerprint import fingerprint
from rdq_core.domain.lease import Claim, Grant, once_more
from rdq_core.domain.task import Failure, Status, failure_of
from rdq_core.domain.times import span_millis
from rdq_core.engine.events import EventName, event_of
from rdq_core.engine.ports import Candidate, Clock, EventSink, IdSource, Jitter, KeyBusy, TaskStore
from rdq_core.engine.report import Resolution
from rdq_core.engine.resolve import dead_until
from rdq_core.engine.routing import DISPATCH_BACKOFF, Router, is_free


class Claimer:
    """Takes candidates for this host."""

    def __init__(
        self,
        store: TaskStore,
        router: Router,
        *,
        clock: Clock,
        ids: IdSource,
        events: EventSink,
        jitter: Jitter,
    ) -> None:
        self._store = store
        self._router = router
        self._jitter = jitter
        self._clock = clock
        self._ids = ids
        self._events = events

    def take(
        self, candidate: Candidate, settings: QueueSettings
    ) -> Claim | Resolution | KeyBusy | None:
        """The claim; DEAD_LETTERED when its lapsed lease was its last; None when another host was
        faster.

        KEY_BUSY when its concurrency key is in use; RELEASED when it was handed over to a function
        that never took it.

        Raises CorruptItem for a row that this version can't read, and StoreFailed.
        """
        now, began = self._clock.now(), self._clock.monotonic()
        grant = Grant(
            token=self._ids.token(),
            now=now,
            lease_expires_at=now + settings.execution.lease,
            hands_over=self._router.hands_over(candidate.handler_ref, settings),
        )
        if candidate.status is Status.PENDING:
            claims = (
                self._store.claim if candidate.concurrency_key is None else self._store.claim_keyed
            )
            claim = claims(candidate, grant)
            if isinstance(claim, KeyBusy):
                return claim
        else:
            lapsed = self._store.lapsed(candidate, now=now)
            if lapsed is None:
                return None
            if is_free(lapsed):
                return self._give_back(lapsed, grant)
            if lapsed.task.attempt_count + 1 >= settings.retry.max_attempts:
                return self._bury(lapsed, settings, grant)
            claim = self._store.reclaim(lapsed, lapse_of(lapsed, now), grant)
        if claim is not None:
            self._tell_claimed(claim, candidate.due_at, latency=self._clock.monotonic() - began)
        return claim

    def _bury(self, lapsed: Claim, settings: QueueSettings, grant: Grant) -> Resolution | None:
        """A handler that kills its worker each time ends here, and not in an endless loop."""
        attempt = lapse_of(lapsed, grant.now)
        error = attempt.error or own_error(Code.LEASE_EXPIRED, "")
        buried = self._store.dead_letter_lapsed(
            lapsed,
            attempt,
            Failure(error.code, error.type, error.message),
            grant,
            fingerprint=fingerprint(lapsed.task.handler_ref, error),
            expires_at=dead_until(settings, grant.now),
        )
        if not buried:
            return None
        self._events.emit(
            event_of(
                EventName.DEAD_LETTERED,
                lapsed.task,
                attempt_no=attempt.attempt_no,
                fencing_token=lapsed.fencing_token,
                outcome=attempt.outcome,
                rule="lease",
                code=error.code,
                error_type=error.type,
            )
        )
        return Resolution.DEAD_LETTERED

    def _give_back(self, lapsed: Claim, grant: Grant) -> Resolution | None:
        """The function was handed the task and never took it: no attempt, but it waits longer each
        time.
        """
        unreached = once_more(lapsed.unreached, grant.now, handed_over=True)
        wait = delay(DISPATCH_BACKOFF, unreached.times, self._jitter.fraction())
        failure = failure_of(Code.UNAVAILABLE, None) or Failure(Code.UNAVAILABLE)
        due_at = next_attempt_at(grant.now, wait)
        if not self._store.release_lapsed(
            lapsed, failure, grant, due_at=due_at, unreached=unreached
        ):
            return None
        self._events.emit(
            event_of(
                EventName.RELEASED,
                lapsed.task,
                attempt_no=lapsed.attempt_no,
                fencing_token=lapsed.fencing_token,
                code=failure.code,
            )
        )
        return Resolution.RELEASED

    def _tell_claimed(self, claim: Claim, due_at: datetime, *, latency: float) -> None:
        self._events.emit(
            event_of(
                EventName.CLAIMED,
                claim.task,
                attempt_no=claim.attempt_no,
                fencing_token=claim.fencing_token,
                lateness_ms=max(0, span_millis(claim.claimed_at - due_at)),
                claim_latency_ms=round(latency * 1000),
            )
        )


def lapse_of(lapsed: Claim, now: datetime) -> Attempt:
    """The attempt record of a holder that was never heard of again: when it ended nobody knows."""
    held = now - lapsed.claimed_at
    return Attempt(
        attempt_no=lapsed.attempt_no,
        started_at=lapsed.claimed_at,
        finished_at=None,
        outcome=Outcome.LEASE_EXPIRED,
        error=own_error(
            Code.LEASE_EXPIRED,
            f"no outcome was reported and the lease ended, as was noticed {span_millis(held)} ms after the claim",
        ),
        worker=None,
        fencing_token=lapsed.fencing_token,
    )
