"""The intake function: events of other services become tasks.

    SQS, and its dead-letter queues    each record, with a partial batch answer
    Lambda on-failure destination      the failed event, its error as the first attempt
    EventBridge                        an event that a rule matched
    {"submit": {...}}                  a task object, as from EventBridge Scheduler or any caller

The invariant: the same record is the same task, however often it is delivered. A refused record
stops only the records behind it in its group of a FIFO queue.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rdq_core.domain import ids, limits
from rdq_core.engine.ports import Submission
from rdq_core.engine.submit import Draft
from rdq_core.errors import ConfigInvalid, InputInvalid, RdqError
from rdq_core.handlers.encoding import JSON
from rdq_core.handlers.sources import (
    draft_of_failure,
    draft_of_message,
    event_bytes,
    group_of,
    is_failure_event,
    records_of,
)
from rdq_core.ops.lines import draft_of_object
from rdq_core.runtime.hosting import FunctionHost

ROUTES: Final = "RDQ_INTAKE_ROUTES"
"""The environment variable that routes sources to queues and handlers, in JSON:
`{"arn:aws:sqs:...:orders": {"queue": "billing", "handler_ref": "charge"}, "*": {...}}`; `*` is any
other source.
"""
_ANY: Final = "*"

_Answer = Submission | RdqError | None


@dataclass(frozen=True, slots=True)
class Route:
    """The queue and the handler for a source's records."""

    queue: str
    handler_ref: str


class IntakeFunction:
    """Stores the tasks of events."""

    def __init__(self, host: FunctionHost) -> None:
        self._parts = host.parts
        self._routes = _routes(host.environ.get(ROUTES) or "{}")

    def take(self, event: Any, request_id: str | None = None) -> dict[str, Any]:
        """Store an event's tasks. Returns the partial batch answer of an SQS batch, else a receipt.

        A single event that is refused raises, so that its sender keeps it. Refused records of a
        batch go to the error listeners and stay in SQS. `request_id` is the invocation's, which
        Lambda repeats when it tries again, so that a submit without id and key is still one task;
        with None each call of such a submit is another task.
        """
        if isinstance(event, Mapping) and isinstance(event.get("Records"), list):
            return self._take_batch(records_of(event))
        draft = self._draft_of(event)
        has_id = draft.options.get("id") is not None or draft.options.get("key") is not None
        if not has_id and request_id is not None:
            task_id = ids.derive_id(draft.queue, f"rdq.invocation {request_id}")
            draft = replace(draft, options={**draft.options, "id": task_id})
        submission = self._parts.submitter().submit(draft)
        return {
            "id": submission.task.id,
            "queue": submission.task.queue,
            "created": submission.created,
        }

    def _take_batch(self, records: list[Any]) -> dict[str, Any]:
        drafts = [self._draft_or_refusal(record) for record in records]
        groups = [group_of(record) if isinstance(record, Mapping) else None for record in records]
        answers = self._store_in_order(drafts, groups) if any(groups) else self._store(drafts)
        stored = [
            self._is_stored(record, answer) for record, answer in zip(records, answers, strict=True)
        ]
        stays = [
            _id_of(record)
            for record, is_stored in zip(records, stored, strict=True)
            if not is_stored
        ]
        # Lambda treats the whole batch as failed when an id of the answer isn't in it.
        return {"batchItemFailures": [{"itemIdentifier": each} for each in stays if each]}

    def _store(self, drafts: list[Draft | RdqError]) -> Sequence[Submission | RdqError]:
        batches = self._parts.submitter().submit_many(drafts)
        return [answer for batch in batches for answer in batch]

    def _store_in_order(
        self, drafts: list[Draft | RdqError], groups: list[str | None]
    ) -> Sequence[_Answer]:
        """Store the drafts one by one, so that each is due after the one before.

        When a record of a FIFO queue's group stays in SQS, the later ones of the group stay too;
        their answer is None.
        """
        answers: list[_Answer] = []
        blocked: set[str | None] = set()
        for draft, group in zip(drafts, groups, strict=True):
            answer = None if group in blocked else self._store([draft])[0]
            answers.append(answer)
            if group is not None and not isinstance(answer, Submission):
                blocked.add(group)
        return answers

    def _is_stored(self, record: Any, answer: _Answer) -> bool:
        if isinstance(answer, RdqError):
            self._parts.on_error(answer, where=f"storing record {_id_of(record)}")
        return isinstance(answer, Submission)

    def _draft_or_refusal(self, record: object) -> Draft | RdqError:
        now = self._parts.clock.now()
        try:
            source = record.get("eventSourceARN") if isinstance(record, Mapping) else None
            route = self._route(str(source or ""))
            return draft_of_message(
                record, queue=route.queue, handler_ref=route.handler_ref, now=now
            )
        except RdqError as refusal:
            return refusal

    def _draft_of(self, event: Any) -> Draft:
        if not isinstance(event, Mapping):
            raise InputInvalid("event", f"must be an object, not {type(event).__name__}")
        if "submit" in event:
            return draft_of_object(event["submit"], Draft(queue="", handler_ref="", payload=b""))
        if is_failure_event(event):
            route = self._route(str(event["requestContext"].get("functionArn") or ""))
            now = self._parts.clock.now()
            return draft_of_failure(
                event, queue=route.queue, handler_ref=route.handler_ref, now=now
            )
        if "detail-type" in event and "id" in event:
            return self._draft_of_matched(event)
        raise InputInvalid(
            "event",
            "is not from a source that the intake supports",
            hint='to store one task, send {"submit": {...}}',
        )

    def _draft_of_matched(self, event: Mapping[str, Any]) -> Draft:
        """The draft of an event that an EventBridge rule matched: all of it is the payload."""
        resources = event.get("resources")
        source = (
            str(resources[0])
            if isinstance(resources, list) and resources
            else str(event.get("source") or "")
        )
        route = self._route(source)
        return Draft(
            queue=route.queue,
            handler_ref=route.handler_ref,
            payload=event_bytes(dict(event)),
            options={
                "key": str(event["id"]),
                "headers": {"rdq.source": source} if source else {},
                "content_type": JSON,
            },
            own_headers=False,
        )

    def _route(self, source: str) -> Route:
        """The route of a source. A function may be named without its version or alias."""
        whole = source.split(":")
        bare = ":".join(whole[:7]) if ":function:" in source else source
        for name in (source, bare, _ANY):
            if name in self._routes:
                return self._routes[name]
        raise InputInvalid("source", f"{source!r} has no route", hint=f"name it in {ROUTES}")


def _routes(text: str) -> dict[str, Route]:
    try:
        found = json.loads(text)
        return {
            str(source): Route(
                limits.check_name("queue", route["queue"]),
                limits.check_name("handler_ref", route["handler_ref"]),
            )
            for source, route in found.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        accepted = 'a JSON object of sources, each {"queue": ..., "handler_ref": ...}'
        raise ConfigInvalid(ROUTES, f"can't be read; accepted: {accepted}") from None


def _id_of(record: Any) -> str:
    return str(record.get("messageId") or "") if isinstance(record, Mapping) else ""
