"""What botocore's errors about an invocation mean for the task: whether the function has run.

refused: no such function, or the payload    not delivered, and never can be
refused otherwise: throttled, denied, ...    not delivered, try later
not sent                                     not delivered, try later
sent, and no answer within the time          an attempt: timed out, and perhaps still running
sent, and the answer lost                    an attempt: its outcome is unknown
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

_MAY_HAVE_RUN: Final = (ClientError, HTTPClientError, IncompleteReadError, ResponseStreamingError)
"""Errors after which the function may have run, except those in `_NOT_SENT`."""

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


def read_invocation_error(error: Exception, function: str) -> Undelivered | Reported:
    """The engine's error: Undelivered if the function did not run, else the attempt's Reported."""
    if isinstance(error, ClientError):
        return _refusal(str(error.response.get("Error", {}).get("Code", "?")), function)
    if isinstance(error, ReadTimeoutError):
        return Reported(
            own_error(Code.TIMEOUT, f"no answer of {function} within the handler's time")
        )
    if isinstance(error, _MAY_HAVE_RUN) and not isinstance(error, _NOT_SENT):
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
