"""`sqs_consumer`: an SQS consumer whose failing records become tasks.

    record ── handled ─────────────────────────────────────► acknowledged
       └─ raises ── a task, with the failure ─── stored ───► acknowledged
                                              └─ not stored, or no time left ──► stays in SQS

The invariant: a record is acknowledged only after it was handled or stored. In a FIFO queue, no
record is handled while an earlier one of its group stays.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.client.rdq import Rdq, parts_of
from rdq_core.domain import ids, limits
from rdq_core.domain.attempt import Attempt
from rdq_core.domain.classification import Raised, Rules, classify
from rdq_core.engine.ports import Handler
from rdq_core.engine.submit import Draft
from rdq_core.errors import ConfigInvalid, InputInvalid, RdqError
from rdq_core.handlers.detached import detached_context
from rdq_core.handlers.registry import Registry
from rdq_core.handlers.sources import draft_of_message, group_of, records_of
from rdq_core.runtime.invocation import remaining_of, worker_name
from rdq_core.runtime.wiring import Parts

_TIME_FOR_ONE: Final = timedelta(seconds=5)

Consumer = Callable[[Mapping[str, Any], Any], dict[str, Any]]


def sqs_consumer(rdq: Rdq, queue: str, ref: str) -> Callable[[Callable[..., Any]], Consumer]:
    """Decorate a function of one message; the result is the Lambda handler of an SQS queue.

    When the function raises, the message becomes a task of `queue`, with that failure as its first
    attempt, and is acknowledged. A message that can't be stored stays in SQS, so
    `ReportBatchItemFailures` must be on. The function gets the body decoded by its annotation, as a
    handler gets a payload; register it as the handler `ref` as well. In a FIFO queue, messages of a
    group that become tasks keep their order among themselves, but not with later messages that
    succeed at once.

    Raises ConfigInvalid for an async function, and for one with other parameters. The Lambda
    handler raises InputInvalid for an event that is not SQS's.
    """
    limits.check_name("queue", queue)

    def decorate(function: Callable[..., Any]) -> Consumer:
        registry = Registry()
        registry.register(ref, function)
        handler = registry.find(ref)
        if handler is None or handler.is_async:
            raise ConfigInvalid(f"sqs_consumer.{ref}", "takes plain functions")
        return functools.partial(_consume_all, _Consumer(parts_of(rdq), queue, handler))

    return decorate


def _consume_all(consumer: "_Consumer", event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    stays: list[object] = []
    blocked: set[str] = set()
    for record in records_of(event):
        group = group_of(record)
        if group in blocked or not _has_time(context) or not consumer.consume(record, context):
            stays.append(record.get("messageId"))
            if group is not None:
                blocked.add(group)
    # Lambda treats the whole batch as failed when an id of the answer isn't in it.
    return {
        "batchItemFailures": [
            {"itemIdentifier": each} for each in stays if each and isinstance(each, str)
        ]
    }


def _has_time(context: Any) -> bool:
    remaining = remaining_of(context)
    return remaining is None or remaining >= _TIME_FOR_ONE


class _Consumer:
    """Handles one record at a time."""

    def __init__(self, parts: Parts, queue: str, handler: Handler) -> None:
        self._parts = parts
        self._queue = queue
        self._handler = handler

    def consume(self, record: Mapping[str, Any], context: Any) -> bool:
        """Handle a record, or store it as a task; False when it must stay in SQS.

        The error that keeps it in SQS goes to the error listeners: no task could record it.
        """
        started_at = self._parts.clock.now()
        try:
            draft = draft_of_message(
                record, queue=self._queue, handler_ref=self._handler.ref, now=started_at
            )
        except InputInvalid as malformed:
            self._parts.on_error(malformed, where=f"reading a message for queue {self._queue}")
            return False
        try:
            self._handle(draft)
        # Anything: the record must not be lost, whatever the application raises.
        except Exception as error:  # noqa: BLE001
            return self._store(draft, self._attempt(error, started_at, context))
        return True

    def _handle(self, draft: Draft) -> None:
        task_id = ids.derive_id(draft.queue, draft.options.get("key") or "")
        context = detached_context(draft.handler_ref, draft.queue, draft.payload, task_id=task_id)
        self._handler.call(self._handler.decode(context.task), context)

    def _attempt(self, error: Exception, started_at: datetime, context: Any) -> Attempt:
        now = self._parts.clock.now()
        verdict = classify(Raised(error), Rules(), now=now)
        return Attempt(
            attempt_no=1,
            started_at=started_at,
            finished_at=now,
            outcome=verdict.outcome,
            error=verdict.error,
            worker=worker_name(context),
        )

    def _store(self, draft: Draft, attempt: Attempt) -> bool:
        try:
            self._parts.submitter().submit(replace(draft, attempts=(*draft.attempts, attempt)))
        except RdqError as refusal:
            self._parts.on_error(
                refusal, where=f"storing a message that failed, for queue {self._queue}"
            )
            return False
        return True
