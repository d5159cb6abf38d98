"""Queues as a CloudFormation custom resource: what a template says becomes the declared layer.

    Type: Custom::RdqQueues
    Properties: {ServiceToken: <the ops function's ARN>, Config: {config_version: 1, queues: {...}}}   or Text: <YAML>

The invariant: CloudFormation always gets an answer, and no queue is ever deleted that holds a task,
that people have made, or that another resource declares too: a queue may move from one resource to
another.
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
from rdq_core.stores.dynamodb.endpoint import is_loopback

Send = Callable[[str, bytes], None]

_REASON_BYTES: Final = 1024
_MARGIN: Final = timedelta(seconds=3)
_KINDS: Final = ("Create", "Update", "Delete")
_FAILED: Final = "!failed"
_TEXTS: Final = frozenset({"owner", "runbook", "function", "handler_version", "field"})
_TRIES: Final = 3
_SECONDS: Final = 10


class CustomResource:
    """Declares queues for CloudFormation, and answers it through `send`."""

    def __init__(self, parts: Parts, *, send: "Send | None" = None) -> None:
        self._parts = parts
        self._send = send or put_answer

    def handle(
        self, event: Mapping[str, Any], remaining: timedelta | None = None
    ) -> dict[str, Any]:
        """Do what the event asks, and tell CloudFormation. The answer that it was sent. Raises
        nothing.
        """
        work = _Work(self._parts, event)
        thread = threading.Thread(target=work.run, name="rdq-resource", daemon=True)
        thread.start()
        thread.join(None if remaining is None else max((remaining - _MARGIN).total_seconds(), 0.0))
        answer = work.answer or _failed(event, "the function ran out of time: try again")
        try:
            self._send(str(event["ResponseURL"]), json.dumps(answer).encode())
        # CloudFormation will time out, and the log says why
        except Exception as error:  # noqa: BLE001
            log_error(error, where="answering CloudFormation")
        return answer


class _Work:
    """One event."""

    def __init__(self, parts: Parts, event: Mapping[str, Any]) -> None:
        self._parts = parts
        self._event = event
        name = truncate(f"cloudformation: {event.get('StackId', 'unknown')}", MAX_SHORT_TEXT_BYTES)
        self._principal = Principal(name, verified=False)
        self._owner = _made(event)
        self.answer: dict[str, Any] | None = None

    def run(self) -> None:
        try:
            self.answer = _answer(self._event, "SUCCESS", self._done())
        except RdqError as refused:
            told = (
                refused.message if refused.hint is None else f"{refused.message} ({refused.hint})"
            )
            self.answer = _failed(self._event, told)
        except Exception as bug:  # noqa: BLE001 - whatever it is, CloudFormation must hear of it
            log_error(bug, where="a custom resource")
            self.answer = _failed(self._event, f"this is a bug in rdq: {type(bug).__name__}")

    def _done(self) -> dict[str, Any]:
        kind = self._event["RequestType"]
        if kind not in _KINDS:
            raise InputInvalid("RequestType", f"is none of {', '.join(_KINDS)}")
        if kind == "Delete":
            made = not str(self._event.get("PhysicalResourceId", "")).endswith(_FAILED)
            return self._leave(self._queues_of("ResourceProperties")) if made else {}
        wanted = checked(_file(self._event.get("ResourceProperties")))
        gone = (
            self._queues_of("OldResourceProperties") - set(wanted.queues)
            if kind == "Update"
            else set()
        )
        self._declare(wanted)
        self._parts.cursor_key.key()  # so that those who may only read find one
        return {"Queues": ",".join(wanted.queues)} | self._leave(gone)

    def _declare(self, wanted: Document) -> None:
        """All queues of the file, or none of those that weren't there before: a conflict takes them
        back.
        """
        editor = self._editor()
        applied = editor.apply(wanted)
        made = {each.queue for each in applied if each.result in (Change.CREATED, Change.RESTORED)}
        for queue in sorted(made):
            editor.own(queue, self._owner, is_new=True)
        refused = next((each for each in applied if each.error is not None), None)
        if refused is None or refused.error is None:
            for queue in sorted(set(wanted.queues) - made):
                editor.own(queue, self._owner, is_new=False)
            return
        self._leave({each.queue for each in applied if each.result is Change.CREATED})
        raise ConfigConflict(f"queue {refused.queue}: {refused.error.message}", hint="deploy again")

    def _leave(self, queues: set[str]) -> dict[str, Any]:
        """Begin the deletion of queues that are empty and nobody else's. The others stay as they
        are.
        """
        editor = self._editor()
        gone = {
            queue
            for queue in queues
            if editor.disown(queue, self._owner) and not self._is_in_use(queue)
        }
        kept = sorted(queues - gone)
        for queue in sorted(gone):
            try:
                editor.delete(queue, reason="it is not in the template any more")
            except QueueNotFound:  # somebody was faster
                continue
        return {"Kept": ",".join(kept)} if kept else {}

    def _is_in_use(self, queue: str) -> bool:
        counts = self._parts.store.counts(queue)
        return bool(counts.pending or counts.in_flight or counts.dead)

    def _queues_of(self, properties: str) -> set[str]:
        """The queues that properties name, without those that aren't configured. What can't be read
        names none.
        """
        try:
            named = _file(self._event.get(properties)).queues
        except RdqError:
            return set()
        return set(named) & set(self._parts.queues.all())

    def _editor(self) -> QueueEditor:
        return QueueEditor(self._parts, self._parts.auditor(self._principal))


def _file(properties: object) -> Document:
    """The file in a resource's properties. CloudFormation makes text of every number and truth
    value on its way.
    """
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
    """The same with numbers and truth values again, where the value can be one."""
    if isinstance(value, Mapping):
        return {name: _typed(inner, name) for name, inner in value.items()}
    if not isinstance(value, str) or key in _TEXTS:
        return value
    try:
        read = yaml.safe_load(value)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ):  # text that only looks like something of YAML's
        return value
    return read if isinstance(read, int | float) else value


def _failed(event: Mapping[str, Any], reason: str) -> dict[str, Any]:
    return _answer(event, "FAILED", {}) | {"Reason": truncate(reason, _REASON_BYTES)}


def _answer(event: Mapping[str, Any], status: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What CloudFormation expects. The physical id is the same for the resource's whole life; that
    of one which was never made says so, and its deletion then does nothing.
    """
    made = _made(event)
    is_new = event.get("RequestType") == "Create"
    physical = made if is_new else str(event.get("PhysicalResourceId") or made)
    return {
        "Status": status,
        "PhysicalResourceId": f"{made}{_FAILED}" if is_new and status == "FAILED" else physical,
        "StackId": event.get("StackId"),
        "RequestId": event.get("RequestId"),
        "LogicalResourceId": event.get("LogicalResourceId"),
        "Data": dict(data),
    }


def _made(event: Mapping[str, Any]) -> str:
    """The physical id of the resource."""
    name = f"{event.get('StackId')}/{event.get('LogicalResourceId')}"
    return f"rdq-queues-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}"


def put_answer(url: str, body: bytes) -> None:
    """Send an answer to CloudFormation's presigned URL, or a local engine's. Raises OSError when it
    does not arrive.
    """
    if not (url.startswith("https://") or (url.startswith("http://") and is_loopback(url))):
        raise OSError("CloudFormation's URL is none")
    # The signature covers an empty content type, and urllib would set one of its own.
    # checked above
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310
    for tried in range(_TRIES):
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - the same
                return
        except OSError:
            if tried + 1 == _TRIES:
                raise
