"""The intake function: what other services deliver becomes tasks.

    SQS, and its dead-letter queues    each record, with a partial batch answer
    Lambda on-failure destination      the failed event, its error as the first attempt
    EventBridge                        an event that a rule matched
    {"submit": {...}}                  a task object, as from EventBridge Scheduler or any caller

The same record is the same task however often it comes, and a record that is refused keeps no other
one out, but for those behind it in its group of a FIFO queue.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
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
    is_destination_record,
    records_of,
)
from rdq_core.ops.lines import task_lines
from rdq_core.runtime.hosting import FunctionHost

ROUTES: Final = "RDQ_INTAKE_ROUTES"
"""The environment variable that says where what comes from a source goes: JSON, as in
`{"arn:aws:sqs:...:orders": {"queue": "billing", "handler_ref": "charge"}, "*": {...}}`; `*` is any
other source.
"""
_ANY: Final = "*"

_Answer = Submission | RdqError | None


@dataclass(frozen=True, slots=True)
class Route:
    """The queue and the handler of what comes from a source."""

    queue: str
    handler_ref: str


class IntakeFunction:
    """Stores what events bring."""

    def __init__(self, host: FunctionHost) -> None:
        self._parts = host.parts
        self._routes = _routes(host.environ.get(ROUTES) or "{}")

    def take(self, event: Any, request_id: str | None = None) -> dict[str, Any]:
        """The partial batch answer of an SQS batch, else the receipt. Raises for a single event
        that is refused, so that whoever sent it keeps it; a batch's refusals are told, and stay in
        SQS.

        `request_id` is the invocation's, which Lambda keeps when it tries again: a submit without
        an id and a key is one task then too. None: each call of such a submit is a task of its own.
        """
        if isinstance(event, Mapping) and isinstance(event.get("Records"), list):
            return self._take_batch(records_of(event))
        draft = self._draft_of(event)
        if draft.id is None and draft.key is None and request_id is not None:
            draft = replace(draft, id=ids.derive_id(draft.queue, f"rdq.invocation {request_id}"))
        submission = self._parts.submitter().submit(draft)
        return {
            "id": submission.task.id,
            "queue": submission.task.queue,
            "created": submission.created,
        }

    def _take_batch(self, records: list[Any]) -> dict[str, Any]:
        drafts = [self._draft_or_refusal(record) for record in records]
        groups = [group_of(record) if isinstance(record, Mapping) else None for record in records]
        answers = self._stored_in_order(drafts, groups) if any(groups) else self._stored(drafts)
        kept = [
            self._is_kept(record, answer) for record, answer in zip(records, answers, strict=True)
        ]
        stays = [
            _id_of(record) for record, is_kept in zip(records, kept, strict=True) if not is_kept
        ]
        # An answer with an id that isn't in the batch would fail all of it.
        return {"batchItemFailures": [{"itemIdentifier": each} for each in stays if each]}

    def _stored(self, drafts: list[Draft | RdqError]) -> Sequence[Submission | RdqError]:
        return [answer for run in self._parts.submitter().submit_many(drafts) for answer in run]

    def _stored_in_order(
        self, drafts: list[Draft | RdqError], groups: list[str | None]
    ) -> Sequence[_Answer]:
        """One after the other, so that each is due after the one before. Behind a record of a FIFO
        queue's group that stays, the group's others stay too: None.
        """
        answers: list[_Answer] = []
        blocked: set[str | None] = set()
        for draft, group in zip(drafts, groups, strict=True):
            answer = None if group in blocked else self._stored([draft])[0]
            answers.append(answer)
            if group is not None and not isinstance(answer, Submission):
                blocked.add(group)
        return answers

    def _is_kept(self, record: Any, answer: _Answer) -> bool:
        if isinstance(answer, RdqError):
            self._parts.on_error(answer, where=f"taking in record {_id_of(record)}")
        return isinstance(answer, Submission)

    def _draft_or_refusal(self, record: object) -> Draft | RdqError:
        now = self._parts.clock.now()
        try:
            source = record.get("eventSourceARN") if isinstance(record, Mapping) else None
            route = self._route(str(source or ""))
            return draft_of_message(
                record, queue=route.queue, handler_ref=route.handler_ref, now=now
            )
        except RdqError as refused:
            return refused

    def _draft_of(self, event: Any) -> Draft:
        if not isinstance(event, Mapping):
            raise InputInvalid("event", f"must be an object, not {type(event).__name__}")
        if "submit" in event:
            return self._stated(event["submit"])
        if is_destination_record(event):
            route = self._route(str(event["requestContext"].get("functionArn") or ""))
            now = self._parts.clock.now()
            return draft_of_failure(
                event, queue=route.queue, handler_ref=route.handler_ref, now=now
            )
        if "detail-type" in event and "id" in event:
            return self._matched(event)
        raise InputInvalid(
            "event", "is none that the intake knows", hint='{"submit": {...}} stores a task'
        )

    def _stated(self, task: object) -> Draft:
        template = Draft(queue="", handler_ref="", payload=b"")
        (line,) = task_lines(BytesIO(event_bytes(task)), template, clock=self._parts.clock)
        if isinstance(line.draft, RdqError):
            raise line.draft
        return line.draft

    def _matched(self, event: Mapping[str, Any]) -> Draft:
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
            content_type=JSON,
            key=str(event["id"]),
            headers={"rdq.source": source} if source else {},
            own_headers=False,
        )

    def _route(self, source: str) -> Route:
        """Where a source's records go. A function's ARN may be named without its version or alias."""
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
