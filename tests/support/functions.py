"""Lambda as a client sees it, played by the test: what each invocation answers or raises, and what
it was sent.
"""

import base64
import io
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from rdq_core.testing.functions import LambdaContext

Answer = bytes | Exception | Callable[[Mapping[str, Any]], Any]


def refused(code: str) -> ClientError:
    """Lambda's own refusal of an invocation."""
    return ClientError({"Error": {"Code": code, "Message": "for people"}}, "Invoke")


def failed(**payload: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A FunctionError with this payload."""
    return lambda _request: {**answered(json.dumps(payload).encode()), "FunctionError": "Unhandled"}


def answered(payload: bytes) -> dict[str, Any]:
    """The answer of a function that returned."""
    return {"StatusCode": 200, "Payload": io.BytesIO(payload)}


class ScriptedLambda:
    """A Lambda client. Invocations take the answers in turn, then `null`, unless there is one for
    their function.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = deque(answers)
        self._of: dict[str, Answer] = {}
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []

    def answer(self, *answers: Answer) -> None:
        """Answer so from now on, in turn."""
        self._answers.extend(answers)

    def always(self, function: str, answer: Answer) -> None:
        """What invocations of a function answer, each time."""
        self._of[function] = answer

    def invoke(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            self.requests.append(request)
            answer = self._of.get(request["FunctionName"])
            if answer is None:
                answer = self._answers.popleft() if self._answers else b"null"
        if isinstance(answer, Exception):
            raise answer
        told = answered(answer) if isinstance(answer, bytes) else answer(request)
        if request.get("InvocationType") == "Event":
            return {"StatusCode": 202, "Payload": io.BytesIO(b"")}
        return (
            told
            if isinstance(told, dict) and "Payload" in told
            else answered(json.dumps(told).encode())
        )

    @property
    def called(self) -> list[str]:
        """The functions, in the order of the invocations."""
        return [request["FunctionName"] for request in self.requests]

    def event(self, number: int = -1) -> Any:
        """The event of an invocation."""
        return json.loads(self.requests[number]["Payload"])

    def context(self, number: int = -1) -> Any:
        """What the function finds as `custom.rdq` of its ClientContext."""
        return json.loads(base64.b64decode(self.requests[number]["ClientContext"]))["custom"]["rdq"]


class Context(LambdaContext):
    """The context of the function `charge-fn`, with so many seconds left."""

    def __init__(self, *, seconds: float = 60, client_context: str | None = None) -> None:
        super().__init__("charge-fn", millis=int(seconds * 1000), client_context=client_context)


def function_of(
    handler: Callable[[Any, Any], Any], *, seconds: float = 60
) -> Callable[[Mapping[str, Any]], Any]:
    """A Python function as Lambda runs it: a failure of it is a FunctionError."""

    def invoke(request: Mapping[str, Any]) -> Any:
        try:
            context = Context(seconds=seconds, client_context=request.get("ClientContext"))
            return handler(json.loads(request["Payload"]), context)
        except Exception as error:  # noqa: BLE001 - as the runtime does it
            return failed(errorType=type(error).__name__, errorMessage=str(error))(request)

    return invoke
