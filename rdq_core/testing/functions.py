"""Lambda inside a test: Python functions under names, called as Lambda calls them, without AWS.

    # what `function: payments-charge` of a queue's handlers calls
    local.functions.add("payments-charge", handler)

A function that raises gives a FunctionError, and an unknown name ResourceNotFoundException.
Hand-overs are delivered at once. Time and size are not limited.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

LambdaFunction = Callable[[Any, Any], Any]
_MINUTE: Final = 60_000


class LambdaContext:
    """The context that Lambda's Python runtime gives a handler, with what rdq and most handlers
    use.
    """

    def __init__(
        self, function: str, *, millis: int = _MINUTE, client_context: str | None = None
    ) -> None:
        self.function_name = function
        self.invoked_function_arn = f"arn:aws:lambda:eu-central-1:000000000000:function:{function}"
        self.aws_request_id = "00000000-0000-0000-0000-000000000000"
        self.client_context = None if client_context is None else ClientContext(client_context)
        self._millis = millis

    def get_remaining_time_in_millis(self) -> int:
        """The time left, which does not change."""
        return self._millis


class ClientContext:
    """The data that the caller sent beside the event, as the runtime decodes it."""

    def __init__(self, encoded: str) -> None:
        decoded = json.loads(base64.b64decode(encoded))
        self.custom: dict[str, Any] | None = decoded.get("custom")
        self.env: dict[str, Any] | None = decoded.get("env")
        self.client = None


class LocalFunctions:
    """The functions of a test, as a Lambda client sees them."""

    def __init__(self) -> None:
        self._functions: dict[str, LambdaFunction] = {}

    def add(self, name: str, function: LambdaFunction) -> None:
        """Let invocations of this name call the function, with the event and a context."""
        self._functions[name] = function

    def invoke(self, **request: Any) -> dict[str, Any]:
        """The part of boto3's `Lambda.Client.invoke` that rdq uses."""
        name = request["FunctionName"]
        if name not in self._functions:
            raise ClientError(
                {"Error": {"Code": "ResourceNotFoundException", "Message": name}}, "Invoke"
            )
        answer = self._called(name, request)
        if request["InvocationType"] == "Event":
            return {"StatusCode": 202, "Payload": io.BytesIO(b"")}
        return answer

    def _called(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        context = LambdaContext(name, client_context=request.get("ClientContext"))
        try:
            returned = self._functions[name](json.loads(request["Payload"]), context)
        except Exception as error:  # noqa: BLE001 - as the runtime does it
            failure = {"errorType": type(error).__name__, "errorMessage": str(error)}
            return _answer(failure) | {"FunctionError": "Unhandled"}
        return _answer(returned)


def _answer(returned: object) -> dict[str, Any]:
    return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(returned).encode())}
