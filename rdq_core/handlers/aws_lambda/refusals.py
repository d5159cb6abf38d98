"""What botocore's errors about an invocation mean: whether the function has run, and whether it
ever may.

refused as missing, or for its payload     the task can't run: Unroutable, input invalid
refused for anything else                  not now: throttled, denied, starting, broken; nothing was run
not sent                                   not now
sent, and no answer within the time        timed out: the function may still be running
sent, and the answer lost                  nobody knows what came of it: an attempt
"""

from typing import Final

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)

from rdq_core.domain.attempt import Code, Reported, own_error, type_name
from rdq_core.engine.routing import Undelivered

FAILURES: Final = (ClientError, HTTPClientError, IncompleteReadError, ResponseStreamingError)
"""What an invocation may raise besides errors that surely come before it."""

_MISSING: Final = frozenset({"ResourceNotFoundException"})
_PAYLOAD: Final = frozenset(
    {
        "InvalidRequestContentException",
        "RequestTooLargeException",
        "RequestEntityTooLargeException",
        "UnsupportedMediaTypeException",
    }
)
_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError, SSLError)


def understood(error: Exception, function: str) -> Undelivered | Reported:
    """The error as the engine takes it."""
    if isinstance(error, ClientError):
        return _refusal(str(error.response.get("Error", {}).get("Code", "?")), function)
    if isinstance(error, ReadTimeoutError):
        return Reported(
            own_error(Code.TIMEOUT, f"no answer of {function} within the handler's time")
        )
    if isinstance(error, FAILURES) and not isinstance(error, _NOT_SENT):
        return Reported(
            own_error(
                Code.OUTCOME_UNKNOWN, f"the answer of {function} was lost: {type_name(error)}"
            )
        )
    return Undelivered(Code.UNAVAILABLE, f"{function} could not be called: {type_name(error)}")


def _refusal(code: str, function: str) -> Undelivered:
    if code in _MISSING:
        return Undelivered(Code.NOT_REGISTERED, f"there is no function {function}")
    if code in _PAYLOAD:
        return Undelivered(Code.INPUT_INVALID, f"payload: cannot be sent to {function}: {code}")
    return Undelivered(Code.UNAVAILABLE, f"{function} could not be called: {code}")
