"""What a failed request means, by what can be done about it.

condition     a condition did not hold: the row that came back says who was faster (perhaps us)
conflict      another transaction holds one of the items: send it again after a pause
throttled     the table is over its capacity: send it again after a longer pause
broken        the service or the network failed; the write may have been carried out
not sent      no connection was made: the write was not carried out
unavailable   a table, permission or credential is missing: an operator has to act
bug           anything else is raised as it is
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnected

_DENIED = re.compile(
    r"not authorized to perform: (?P<action>[\w-]+:\w+)"
    r"(?: on resource: (?:\S*[:/])?(?P<resource>[\w.-]+))?"
)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SERVER_ERRORS: Final = 500


class FailureKind(Enum):
    """The families of failure, by what is done about them."""

    CONDITION = auto()
    CONFLICT = auto()
    THROTTLED = auto()
    BROKEN = auto()
    NOT_SENT = auto()
    UNAVAILABLE = auto()
    BUG = auto()

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self in _TRANSIENT

    @property
    def may_have_happened(self) -> bool:
        """Whether the write may have been carried out although the request failed."""
        return self is FailureKind.BROKEN


_TRANSIENT: Final = frozenset(
    {FailureKind.CONFLICT, FailureKind.THROTTLED, FailureKind.BROKEN, FailureKind.NOT_SENT}
)

_CODES: Final[Mapping[str, FailureKind]] = {
    "ConditionalCheckFailedException": FailureKind.CONDITION,
    "TransactionConflictException": FailureKind.CONFLICT,
    # An earlier attempt at this very transaction is still running, so it may yet succeed.
    "TransactionInProgressException": FailureKind.BROKEN,
    "ThrottlingException": FailureKind.THROTTLED,
    "ThrottledException": FailureKind.THROTTLED,
    "RequestLimitExceeded": FailureKind.THROTTLED,
    "ProvisionedThroughputExceededException": FailureKind.THROTTLED,
    "ReplicatedWriteConflictException": FailureKind.CONFLICT,
    "LimitExceededException": FailureKind.THROTTLED,
    "SlowDown": FailureKind.THROTTLED,
    "OperationAborted": FailureKind.CONFLICT,
    "InternalServerError": FailureKind.BROKEN,
    "InternalFailure": FailureKind.BROKEN,
    "ServiceUnavailable": FailureKind.BROKEN,
    "ServiceUnavailableException": FailureKind.BROKEN,
    "RequestTimeout": FailureKind.BROKEN,
    "RequestTimeoutException": FailureKind.BROKEN,
    "ResourceNotFoundException": FailureKind.UNAVAILABLE,
    "AccessDeniedException": FailureKind.UNAVAILABLE,
    "AccessDenied": FailureKind.UNAVAILABLE,
    "NoSuchBucket": FailureKind.UNAVAILABLE,
    "InvalidAccessKeyId": FailureKind.UNAVAILABLE,
    "SignatureDoesNotMatch": FailureKind.UNAVAILABLE,
    "UnrecognizedClientException": FailureKind.UNAVAILABLE,
    "InvalidSignatureException": FailureKind.UNAVAILABLE,
    "MissingAuthenticationTokenException": FailureKind.UNAVAILABLE,
    "ExpiredTokenException": FailureKind.UNAVAILABLE,
    "IncompleteSignatureException": FailureKind.UNAVAILABLE,
}
"""Error codes of DynamoDB and S3 ("Error handling with DynamoDB", "Error responses" in their
references).
"""

_REASONS: Final[Mapping[str, FailureKind]] = {
    "ConditionalCheckFailed": FailureKind.CONDITION,
    "TransactionConflict": FailureKind.CONFLICT,
    "ThrottlingError": FailureKind.THROTTLED,
    "ProvisionedThroughputExceeded": FailureKind.THROTTLED,
    "RequestLimitExceeded": FailureKind.THROTTLED,
}
"""CancellationReasons of TransactWriteItems, which spells its codes without "Exception"."""
_NO_REASON: Final = frozenset({"None", ""})
# A bug stays a bug whatever the other items report, and a condition that failed will not hold by
# waiting.
_GRAVEST_FIRST: Final = (
    FailureKind.BUG,
    FailureKind.CONDITION,
    FailureKind.THROTTLED,
    FailureKind.CONFLICT,
)


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A classified failure. `rows` are the items that conditions failed on, by the position of
    their part in the request.
    """

    kind: FailureKind
    code: str
    rows: Mapping[int, Mapping[str, Any] | None]


def understand(error: Exception) -> RequestFailure:
    """Classify an exception that botocore raised."""
    if isinstance(error, ClientError):
        return understand_answer(error.response)
    return RequestFailure(_unanswered(error), type(error).__name__, {})


def understand_answer(response: Mapping[str, Any]) -> RequestFailure:
    """Classify an error response."""
    code = str(response.get("Error", {}).get("Code", ""))
    if code == "TransactionCanceledException":
        return _cancelled(response.get("CancellationReasons", ()))
    kind = _CODES.get(code)
    if kind is None:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = FailureKind.BROKEN if status >= _SERVER_ERRORS else FailureKind.BUG
    rows = {0: response.get("Item")} if kind is FailureKind.CONDITION else {}
    return RequestFailure(kind, code, rows)


def _cancelled(reasons: Sequence[Mapping[str, Any]]) -> RequestFailure:
    codes = [str(reason.get("Code") or "") for reason in reasons]
    kinds = {
        position: _REASONS.get(code, FailureKind.BUG)
        for position, code in enumerate(codes)
        if code not in _NO_REASON
    }
    kind = next((each for each in _GRAVEST_FIRST if each in kinds.values()), FailureKind.BUG)
    rows = {
        position: reasons[position].get("Item")
        for position, each in kinds.items()
        if each is FailureKind.CONDITION
    }
    return RequestFailure(
        kind, ", ".join(code or "None" for code in codes) or "no reasons given", rows
    )


def _unanswered(error: Exception) -> FailureKind:
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return FailureKind.UNAVAILABLE
    if isinstance(error, NotConnected) and not isinstance(error, SSLError):
        return FailureKind.NOT_SENT
    # In all other cases there was a connection, so the request may have arrived.
    is_broken = isinstance(error, HTTPClientError | IncompleteReadError | SSLError | ChecksumError)
    return FailureKind.BROKEN if is_broken else FailureKind.BUG


def denied_action(error: Exception) -> tuple[str, str] | None:
    """The missing action and its resource, from the message of an AccessDenied; None when the
    message has neither.

    The request's own name would mislead: a transaction needs the permissions of its parts.
    """
    if not isinstance(error, ClientError):
        return None
    found = _DENIED.search(error.response.get("Error", {}).get("Message", ""))
    return None if found is None else (found["action"], found["resource"] or "")


# -- where a request went --------------------------------------------------------------------------


def is_loopback(url: str) -> bool:
    """Whether a URL points to this machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in _LOOPBACK or host.endswith(".localhost")


def endpoint_of(error: BaseException) -> str | None:
    """The scheme and address that a failed request was sent to; None when the error doesn't say."""
    if not isinstance(error, BotoCoreError) or not isinstance(
        url := error.kwargs.get("endpoint_url"), str
    ):
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None


def is_refused_locally(error: BaseException) -> bool:
    """Whether this machine refused the connection. Sending the request again is pointless then: the
    port stays closed until a server starts.
    """
    if not isinstance(error, EndpointConnectionError) or not is_loopback(endpoint_of(error) or ""):
        return False
    # urllib3's error, whose cause distinguishes a refused connection from an unknown host name.
    cause = error.kwargs.get("error")
    return isinstance(getattr(cause, "__cause__", None), ConnectionRefusedError)
