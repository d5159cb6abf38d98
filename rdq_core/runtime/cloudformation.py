"""Queues as a CloudFormation custom resource: a template's queues become the declared layer.

    Type: Custom::RdqQueues
    Properties:
      ServiceToken: <the ops function's ARN>
      Config: {config_version: 1, queues: {...}}        # or Text: <YAML>

The invariant: CloudFormation always gets an answer. A queue is deleted only if it holds no task,
was created by a template, and is declared by no other resource (queues may move between resources).
"""

import hashlib
import json
import threading
import urllib.request
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import yaml

from rdq_core.config.document import Document, document_of, parse_document
from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES
from rdq_core.domain.text import truncate
from rdq_core.engine.auditor import Principal
from rdq_core.errors import ConfigConflict, InputInvalid, QueueNotFound, RdqError
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.ops.queues import Change, checked
from rdq_core.runtime.log import log_error
from rdq_core.runtime.wiring import Parts
from rdq_core.stores.dynamodb.request_failures import is_loopback

Send = Callable[[str, bytes], None]

_REASON_BYTES: Final = 1024
_MARGIN: Final = timedelta(seconds=3)
_KINDS: Final = ("Create", "Update", "Delete")
_FAILED: Final = "!failed"
_TEXTS: Final = frozenset({"owner", "runbook", "function", "handler_version", "field"})
_ATTEMPTS: Final = 3
_SECONDS: Final = 10


class CustomResource:
    """Declares queues for CloudFormation, and sends its answers with `send`."""

    def __init__(self, parts: Parts, *, send: "Send | None" = None) -> None:
        self._parts = parts
        self._send = send or put_answer

    def handle(
        self, event: Mapping[str, Any], remaining: timedelta | None = None
    ) -> dict[str, Any]:
        """Carry out the event, send CloudFormation the answer, and return it. Never raises."""
        change = _Change(self._parts, event)
        # In a thread, so that an answer is sent before Lambda ends the invocation: without one
        # CloudFormation waits for an hour.
        thread = threading.Thread(target=change.run, name="rdq-resource", daemon=True)
        thread.start()
        thread.join(None if remaining is None else max((remaining - _MARGIN).total_seconds(), 0.0))
        answer = change.answer or _failed(event, "the function ran out of time: try again")
        try:
            self._send(str(event["ResponseURL"]), json.dumps(answer).encode())
        except Exception as error:  # noqa: BLE001 - CloudFormation will time out; the log says why
            log_error(error, where="answering CloudFormation")
        return answer


class _Change:
    """The change of queues that one event asks for."""

    def __init__(self, parts: Parts, event: Mapping[str, Any]) -> None:
        self._parts = parts
        self._event = event
        name = truncate(f"cloudformation: {event.get('StackId', 'unknown')}", MAX_SHORT_TEXT_BYTES)
        self._principal = Principal(name, verified=False)
        self._owner = _physical_id(event)
        self.answer: dict[str, Any] | None = None

    def run(self) -> None:
        try:
            self.answer = _answer(self._event, "SUCCESS", self._apply())
        except RdqError as refused:
            hint = "" if refused.hint is None else f" ({refused.hint})"
            self.answer = _failed(self._event, f"{refused.message}{hint}")
        except Exception as bug:  # noqa: BLE001 - CloudFormation must get an answer
            log_error(bug, where="a custom resource")
            self.answer = _failed(self._event, f"this is a bug in rdq: {type(bug).__name__}")

    def _apply(self) -> dict[str, Any]:
        kind = self._event["RequestType"]
        if kind not in _KINDS:
            raise InputInvalid("RequestType", f"is not one of {', '.join(_KINDS)}")
        if kind == "Delete":
            exists = not str(self._event.get("PhysicalResourceId", "")).endswith(_FAILED)
            return self._release(self._queues_of("ResourceProperties")) if exists else {}
        wanted = checked(_file(self._event.get("ResourceProperties")))
        dropped = (
            self._queues_of("OldResourceProperties") - set(wanted.queues)
            if kind == "Update"
            else set()
        )
        self._declare(wanted)
        # Creates the key if there is none: callers that may only read can't, and need it for pages.
        self._parts.cursor_key.key()
        return {"Queues": ",".join(wanted.queues)} | self._release(dropped)

    def _declare(self, wanted: Document) -> None:
        """Declare the queues of the file.

        After a conflict the queues it has just created are deleted, because CloudFormation
        considers the resource not created.
        """
        editor = self._editor()
        applied = editor.apply(wanted)
        created = {
            each.queue for each in applied if each.result in (Change.CREATED, Change.RESTORED)
        }
        for queue in sorted(created):
            editor.own(queue, self._owner, is_new=True)
        refused = next((each for each in applied if each.error is not None), None)
        if refused is None or refused.error is None:
            for queue in sorted(set(wanted.queues) - created):
                editor.own(queue, self._owner, is_new=False)
            return
        self._release({each.queue for each in applied if each.result is Change.CREATED})
        raise ConfigConflict(f"queue {refused.queue}: {refused.error.message}", hint="deploy again")

    def _release(self, queues: set[str]) -> dict[str, Any]:
        """Begin to delete the queues that are empty and declared by this resource alone.

        The others stay.
        """
        editor = self._editor()
        deletable = {
            queue
            for queue in queues
            if editor.disown(queue, self._owner) and not self._is_in_use(queue)
        }
        kept = sorted(queues - deletable)
        for queue in sorted(deletable):
            try:
                editor.delete(queue, reason="it is not in the template any more")
            except QueueNotFound:  # deleted by another caller meanwhile
                continue
        return {"Kept": ",".join(kept)} if kept else {}

    def _is_in_use(self, queue: str) -> bool:
        counts = self._parts.store.counts(queue)
        return bool(counts.pending or counts.in_flight or counts.dead)

    def _queues_of(self, properties: str) -> set[str]:
        """The configured queues that properties name; none where the properties can't be read."""
        try:
            named = _file(self._event.get(properties)).queues
        except RdqError:
            return set()
        return set(named) & set(self._parts.queues.all())

    def _editor(self) -> QueueEditor:
        return QueueEditor(self._parts, self._parts.auditor(self._principal))


def _file(properties: object) -> Document:
    """The file in a resource's properties. CloudFormation passes numbers and booleans as text."""
    if not isinstance(properties, Mapping):
        raise InputInvalid("ResourceProperties", "must be an object")
    text, config = properties.get("Text"), properties.get("Config")
    if (text is None) == (config is None):
        raise InputInvalid("Config", "is missing: give Config, or the file as Text")
    if not isinstance(text, str | None):
        raise InputInvalid("Text", "must be text: a configuration file")
    try:
        return parse_document(text) if text is not None else document_of(_typed(config))
    except RecursionError:
        raise InputInvalid("Config", "is nested too deeply") from None


def _typed(value: Any, key: str = "") -> Any:
    """The value with text turned back into numbers and booleans, except where a key holds text."""
    if isinstance(value, Mapping):
        return {name: _typed(inner, name) for name, inner in value.items()}
    if not isinstance(value, str) or key in _TEXTS:
        return value
    try:
        read = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):  # text that YAML reads as broken syntax
        return value
    return read if isinstance(read, int | float) else value


def _failed(event: Mapping[str, Any], reason: str) -> dict[str, Any]:
    return _answer(event, "FAILED", {}) | {"Reason": truncate(reason, _REASON_BYTES)}


def _answer(event: Mapping[str, Any], status: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that CloudFormation expects.

    The physical id stays for the resource's life; that of a resource whose creation failed is
    marked, so that its deletion does nothing.
    """
    own = _physical_id(event)
    is_new = event.get("RequestType") == "Create"
    physical = own if is_new else str(event.get("PhysicalResourceId") or own)
    return {
        "Status": status,
        "PhysicalResourceId": f"{own}{_FAILED}" if is_new and status == "FAILED" else physical,
        "StackId": event.get("StackId"),
        "RequestId": event.get("RequestId"),
        "LogicalResourceId": event.get("LogicalResourceId"),
        "Data": dict(data),
    }


def _physical_id(event: Mapping[str, Any]) -> str:
    """The physical id of the resource."""
    name = f"{event.get('StackId')}/{event.get('LogicalResourceId')}"
    return f"rdq-queues-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"


def put_answer(url: str, body: bytes) -> None:
    """Send an answer to CloudFormation's presigned URL, or to a local engine.

    Raises OSError after three failures.
    """
    if not (url.startswith("https://") or (url.startswith("http://") and is_loopback(url))):
        raise OSError("ResponseURL is not an HTTPS URL")
    # The signature covers an empty content type, and urllib would set one of its own.
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310 - checked above
    for tried in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - the same
                return
        except OSError:
            if tried + 1 == _ATTEMPTS:
                raise
