"""Takes a candidate: claims a waiting task, or reclaims one whose holder let its lease lapse."""

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
    """Takes candidates for this host. Safe between threads."""

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
        """The claim of a candidate, or why there is none.

        None when another host was faster, KEY_BUSY when its concurrency key is in use.
        DEAD_LETTERED when its lapsed lease spent the last of its budget; RELEASED when it was
        handed over to a function that never adopted it. Raises CorruptItem for a row that this
        version can't read, and StoreFailed.
        """
        now, began = self._clock.now(), self._clock.monotonic()
        # Made once: the store repeats the write with the same token, by which it recognises a
        # success whose answer was lost.
        grant = Grant(
            token=self._ids.token(),
            now=now,
            lease_expires_at=now + settings.execution.lease,
            hands_over=self._router.hands_over(candidate.handler_ref, settings),
        )
        taken: Claim | Resolution | KeyBusy | None
        if candidate.status is not Status.PENDING:
            taken = self._take_lapsed(candidate, settings, grant)
        elif candidate.concurrency_key is None:
            taken = self._store.claim(candidate, grant)
        else:
            taken = self._store.claim_keyed(candidate, grant)
        if isinstance(taken, Claim):
            self._events.emit(
                event_of(
                    EventName.CLAIMED,
                    taken.task,
                    attempt_no=taken.attempt_no,
                    fencing_token=taken.fencing_token,
                    lateness_ms=max(0, span_millis(taken.claimed_at - candidate.due_at)),
                    claim_latency_ms=round((self._clock.monotonic() - began) * 1000),
                )
            )
        return taken

    def _take_lapsed(
        self, candidate: Candidate, settings: QueueSettings, grant: Grant
    ) -> Claim | Resolution | None:
        lapsed = self._store.lapsed(candidate, now=grant.now)
        if lapsed is None:
            return None
        # In this order: a hand-over that was never adopted spends no budget, so it can't be the
        # last attempt.
        if is_free(lapsed):
            return self._release(lapsed, grant)
        if lapsed.task.attempt_count + 1 >= settings.retry.max_attempts:
            return self._dead_letter(lapsed, settings, grant)
        return self._store.reclaim(lapsed, lapse_of(lapsed, grant.now), grant)

    def _dead_letter(
        self, lapsed: Claim, settings: QueueSettings, grant: Grant
    ) -> Resolution | None:
        # A handler that kills its worker each time ends here, instead of being reclaimed for ever.
        attempt = lapse_of(lapsed, grant.now)
        error = attempt.error or own_error(Code.LEASE_EXPIRED, "")
        if not self._store.dead_letter_lapsed(
            lapsed,
            attempt,
            Failure(error.code, error.type, error.message),
            grant,
            fingerprint=fingerprint(lapsed.task.handler_ref, error),
            expires_at=dead_until(settings, grant.now),
        ):
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

    def _release(self, lapsed: Claim, grant: Grant) -> Resolution | None:
        """Release a task that its function was handed and never adopted: no attempt, but a wait
        that grows each time.
        """
        unreached = once_more(lapsed.unreached, grant.now, handed_over=True)
        wait = delay(DISPATCH_BACKOFF, unreached.times, self._jitter.fraction())
        # The row keeps the code alone; readers get the text from `failure_of` too.
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


def lapse_of(lapsed: Claim, now: datetime) -> Attempt:
    """The attempt record of a holder that reported no outcome. When it ended is unknown."""
    held = now - lapsed.claimed_at
    return Attempt(
        attempt_no=lapsed.attempt_no,
        started_at=lapsed.claimed_at,
        finished_at=None,
        outcome=Outcome.LEASE_EXPIRED,
        error=own_error(
            Code.LEASE_EXPIRED,
            f"no outcome was reported before the lease ended; noticed {span_millis(held)} ms after"
            " the claim",
        ),
        worker=None,
        fencing_token=lapsed.fencing_token,
    )
