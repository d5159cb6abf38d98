"""Scripted faults between a boto3 client and its service: what a network or a busy service does, at
the chosen request.

    with FaultScript(client) as faults:
        faults.lose_answer("UpdateItem", nth=2)               # carried out, but the answer is lost
        faults.reject("ThrottlingException", "Query")         # refused before it is carried out
        faults.interleave(steal_the_lease, at=3)              # runs just before the third request
        ...
    assert faults.count("UpdateItem") == 2

The faults sit below botocore's own retries, so a request here is one that would be on the wire: a
call that botocore repeats is several. botocore has no public place for this: a `before-send` hook
can't stand below the in-process moto, which answers there too and would carry out what the script
means to refuse.
"""

import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, EndpointConnectionError, ReadTimeoutError

Answer: TypeAlias = tuple[tuple[AWSResponse, dict[str, Any]] | None, Exception | None]
"""What botocore makes of a request: a response and its parsed form, or an exception."""

_STATUS: Final = {
    "InternalServerError": 500,
    "InternalFailure": 500,
    "ServiceUnavailable": 503,
    "SlowDown": 503,
}
_PARAMETERS: Final = "rdq-fault-script-parameters"


@dataclass(frozen=True, slots=True)
class Request:
    """One request before it is sent: its number from 1, its operation and parameters."""

    number: int
    operation: str
    params: Mapping[str, Any]
    url: str


class Fault(Protocol):
    """What happens to one request. `send` sends it, or applies the next fault of the script."""

    def __call__(self, request: Request, send: Callable[[], Answer]) -> Answer:
        """Return the answer, or raise what the caller of the client gets."""
        ...


@dataclass(frozen=True, slots=True)
class LosesRequest:
    """The request never arrives.

    With `error=ReadTimeoutError` the caller can't distinguish that from a lost answer.
    """

    error: type[BotoCoreError] = EndpointConnectionError

    def __call__(self, request: Request, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002
        """Fail without sending."""
        return None, self.error(endpoint_url=request.url)


@dataclass(frozen=True, slots=True)
class LosesAnswer:
    """The request is carried out, and its answer is lost."""

    error: type[BotoCoreError] = ReadTimeoutError

    def __call__(self, request: Request, send: Callable[[], Answer]) -> Answer:
        """Send, then fail."""
        send()
        return None, self.error(endpoint_url=request.url)


@dataclass(frozen=True, slots=True)
class Rejects:
    """The service refuses the request in DynamoDB's format, without carrying it out.

    `reasons` are those of a cancelled transaction, one per item: None for an item without a
    problem, a code such as `"ConditionalCheckFailed"`, or a whole reason (`{"Code": ..., "Message":
    ..., "Item": ...}`). `item` is what a failed condition returns with ALL_OLD.
    """

    code: str
    message: str = ""
    status: int | None = None
    reasons: Sequence[str | Mapping[str, Any] | None] = ()
    item: Mapping[str, Any] | None = None

    def __call__(self, request: Request, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002
        """Answer with the error."""
        reasons = [_reason(reason) for reason in self.reasons]
        codes = ", ".join(reason["Code"] for reason in reasons)
        message = self.message or (
            "Transaction cancelled, please refer cancellation reasons for specific reasons"
            f" [{codes}]"
            if reasons
            else "rejected by the test's fault script"
        )
        status = self.status or _STATUS.get(self.code, 400)
        headers = {
            "x-amzn-RequestId": f"rdq-fault-{request.number}",
            "content-type": "application/x-amz-json-1.0",
        }
        parsed: dict[str, Any] = {
            "Error": {"Code": self.code, "Message": message},
            "ResponseMetadata": {
                "RequestId": headers["x-amzn-RequestId"],
                "HTTPStatusCode": status,
                "HTTPHeaders": headers,
            },
        }
        if reasons:
            parsed |= {"Message": message, "CancellationReasons": reasons}
        if self.item is not None:
            parsed |= {"message": message, "Item": dict(self.item)}
        body = json.dumps(
            {"__type": f"com.amazonaws.dynamodb.v20120810#{self.code}", "message": message}
        )
        response = AWSResponse(request.url, status, headers, _Body(body.encode()))  # type: ignore[arg-type]
        return (response, parsed), None


@dataclass(frozen=True, slots=True)
class Interleaves:
    """Another writer acts just before the request is sent, or after it was carried out and
    before its answer arrives.
    """

    do: Callable[[], object]
    when: Literal["before", "after"] = "before"

    def __call__(self, request: Request, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002
        """Act and send, in the order asked for.

        What `do` raises, the caller of the client meets.
        """
        if self.when == "before":
            self.do()
            return send()
        answer = send()
        self.do()
        return answer


@dataclass(slots=True)
class _Rule:
    """A fault, and the requests that it is meant for: `times` of those that match, from the nth
    on.
    """

    fault: Fault
    operation: str | None
    nth: int
    times: int | None
    where: Callable[[Request], bool] | None
    seen: int = field(default=0, init=False)

    def has_its_turn(self, request: Request) -> bool:
        """Count the request if it matches, and return whether the fault applies to it."""
        if self.operation not in (None, request.operation) or (
            self.where and not self.where(request)
        ):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class FaultScript:
    """The faults of one client, while in its `with` statement. It also records every request.

    Without rules it only records. A rule counts the matching requests made since it was added:
    those of `operation` (None: any) for which `where(request)` holds. `nth` is the first one that
    is affected, and `times` the number of them in a row, None for all that follow. When several
    rules apply to one request, the rule added first takes effect first. Requests of an interleaved
    callable on its own thread are another writer's: they are not counted or affected.
    """

    def __init__(self, client: BaseClient) -> None:
        self._client = client
        self._endpoint = client._endpoint  # type: ignore[attr-defined]  # noqa: SLF001
        self._rules: list[_Rule] = []
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._thread = threading.local()

    # -- the script --------------------------------------------------------------------------------

    def add(
        self,
        fault: Fault,
        operation: str | None = None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Request], bool] | None = None,
    ) -> None:
        """Apply `fault` to the chosen requests. The other methods are short forms of this one."""
        if nth < 1:
            raise ValueError(f"nth counts from 1, not from {nth}")
        with self._lock:
            self._rules.append(_Rule(fault, operation, nth, times, where))

    def lose_request(
        self,
        operation: str | None = None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Request], bool] | None = None,
        error: type[BotoCoreError] = EndpointConnectionError,
    ) -> None:
        """The chosen requests are never carried out: see LosesRequest."""
        self.add(LosesRequest(error), operation, nth=nth, times=times, where=where)

    def lose_answer(
        self,
        operation: str | None = None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Request], bool] | None = None,
    ) -> None:
        """The chosen requests are carried out, and end in a read timeout: see LosesAnswer."""
        self.add(LosesAnswer(), operation, nth=nth, times=times, where=where)

    def reject(
        self,
        code: str,
        operation: str | None = None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Request], bool] | None = None,
        reasons: Sequence[str | Mapping[str, Any] | None] = (),
    ) -> None:
        """The service refuses the chosen requests with this error code: see Rejects."""
        self.add(Rejects(code, reasons=reasons), operation, nth=nth, times=times, where=where)

    def interleave(
        self,
        do: Callable[[], object],
        operation: str | None = None,
        *,
        at: int = 1,
        when: Literal["before", "after"] = "before",
        where: Callable[[Request], bool] | None = None,
    ) -> None:
        """Run `do` once, just before the chosen request is sent or right after it was carried out:
        see Interleaves.
        """
        self.add(
            Interleaves(lambda: self._as_another_writer(do), when), operation, nth=at, where=where
        )

    # -- what happened -----------------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in order, including lost and refused ones."""
        with self._lock:
            return list(self._requests)

    def count(self, operation: str | None = None) -> int:
        """The number of requests, of this operation or of all."""
        return sum(operation in (None, request.operation) for request in self.requests)

    # -- between client and service ----------------------------------------------------------------

    def __enter__(self) -> Self:
        if "_do_get_response" in vars(self._endpoint):
            raise RuntimeError("this client already has a fault script")
        self._send = self._endpoint._do_get_response  # noqa: SLF001
        self._endpoint._do_get_response = self._meet  # noqa: SLF001
        self._client.meta.events.register_last(
            "before-parameter-build", _keep_parameters, unique_id=_PARAMETERS
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        del self._endpoint._do_get_response  # noqa: SLF001
        self._client.meta.events.unregister("before-parameter-build", unique_id=_PARAMETERS)

    def _meet(self, wire: Any, operation_model: Any, context: dict[str, Any]) -> Answer:
        def send() -> Answer:
            answer: Answer = self._send(wire, operation_model, context)
            return answer

        if getattr(self._thread, "is_another_writer", False):
            return send()
        request, faults = self._take_down(
            operation_model.name, context.get(_PARAMETERS, {}), wire.url
        )
        return _through(faults, request, send)

    def _take_down(
        self, operation: str, params: Mapping[str, Any], url: str
    ) -> tuple[Request, Iterator[Fault]]:
        with self._lock:
            request = Request(len(self._requests) + 1, operation, params, url)
            self._requests.append(request)
            faults = [rule.fault for rule in self._rules if rule.has_its_turn(request)]
        return request, iter(faults)

    def _as_another_writer(self, do: Callable[[], object]) -> None:
        self._thread.is_another_writer = True
        try:
            do()
        finally:
            self._thread.is_another_writer = False


def _through(faults: Iterator[Fault], request: Request, send: Callable[[], Answer]) -> Answer:
    fault = next(faults, None)
    return send() if fault is None else fault(request, lambda: _through(faults, request, send))


def _keep_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[_PARAMETERS] = dict(params)


def _reason(reason: str | Mapping[str, Any] | None) -> dict[str, Any]:
    match reason:
        case None:
            return {"Code": "None"}
        case "ConditionalCheckFailed":
            return {"Code": reason, "Message": "The conditional request failed"}
        case str():
            return {"Code": reason, "Message": "rejected by the test's fault script"}
        case _:
            return dict(reason)


class _Body(io.BytesIO):
    """A response's raw body, as urllib3 would hand it over."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
