"""What a failed request means: refused by a condition, worth another try, not possible from here,
or our own bug.

condition       somebody else was faster, or we were ourselves and lost the answer: the row that came back decides
conflict        another transaction holds an item just now: again, after a pause
throttled       too much at once: again, after a longer pause
broken          the service or the network failed; the write may have happened
not sent        no connection: the write has not happened
unavailable     a missing table, permission or credential: nothing will help but a person
bug             anything else is raised as it is
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from botocore.exceptions import (
    ChecksumError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnected

_DENIED = re.compile(
    r"not authorized to perform: (?P<action>[\w-]+:\w+)(?: on resource: (?:\S*[:/])?(?P<resource>[\w.-]+))?"
)


class Kind(Enum):
    """The families of failure, by what is done about them."""

    CONDITION = auto()
    CONFLICT = auto()
    THROTTLED = auto()
    BROKEN = auto()
    NOT_SENT = auto()
    UNAVAILABLE = auto()
    BUG = auto()

    @property
    def is_worth_another_try(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self in _PASSING

    @property
    def may_have_happened(self) -> bool:
        """Whether the write may have taken place although it failed."""
        return self is Kind.BROKEN


_PASSING: Final = frozenset({Kind.CONFLICT, Kind.THROTTLED, Kind.BROKEN, Kind.NOT_SENT})

_CODES: Final[Mapping[str, Kind]] = {
    "ConditionalCheckFailedException": Kind.CONDITION,
    "TransactionConflictException": Kind.CONFLICT,
    # An earlier try of this very transaction is still under way, so it may yet succeed.
    "TransactionInProgressException": Kind.BROKEN,
    "ThrottlingException": Kind.THROTTLED,
    "ThrottledException": Kind.THROTTLED,
    "RequestLimitExceeded": Kind.THROTTLED,
    "ProvisionedThroughputExceededException": Kind.THROTTLED,
    "ReplicatedWriteConflictException": Kind.CONFLICT,
    "LimitExceededException": Kind.THROTTLED,
    "SlowDown": Kind.THROTTLED,
    "OperationAborted": Kind.CONFLICT,
    "InternalServerError": Kind.BROKEN,
    "InternalFailure": Kind.BROKEN,
    "ServiceUnavailable": Kind.BROKEN,
    "ServiceUnavailableException": Kind.BROKEN,
    "RequestTimeout": Kind.BROKEN,
    "RequestTimeoutException": Kind.BROKEN,
    "ResourceNotFoundException": Kind.UNAVAILABLE,
    "AccessDeniedException": Kind.UNAVAILABLE,
    "AccessDenied": Kind.UNAVAILABLE,
    "NoSuchBucket": Kind.UNAVAILABLE,
    "InvalidAccessKeyId": Kind.UNAVAILABLE,
    "SignatureDoesNotMatch": Kind.UNAVAILABLE,
    "UnrecognizedClientException": Kind.UNAVAILABLE,
    "InvalidSignatureException": Kind.UNAVAILABLE,
    "MissingAuthenticationTokenException": Kind.UNAVAILABLE,
    "ExpiredTokenException": Kind.UNAVAILABLE,
    "IncompleteSignatureException": Kind.UNAVAILABLE,
}

_REASONS: Final[Mapping[str, Kind]] = {
    "ConditionalCheckFailed": Kind.CONDITION,
    "TransactionConflict": Kind.CONFLICT,
    "ThrottlingError": Kind.THROTTLED,
    "ProvisionedThroughputExceeded": Kind.THROTTLED,
    "RequestLimitExceeded": Kind.THROTTLED,
}
_NO_REASON: Final = frozenset({"None", ""})
# A bug stays one however the other items fared; a condition that failed will not hold by waiting.
_GRAVEST_FIRST: Final = (Kind.BUG, Kind.CONDITION, Kind.THROTTLED, Kind.CONFLICT)

_SERVER_ERRORS: Final = 500


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed request, understood. `rows` are the items that conditions failed on, by their place
    in the request.
    """

    kind: Kind
    code: str
    rows: Mapping[int, Mapping[str, Any] | None]


def understand(error: Exception) -> Fault:
    """What a failed request means."""
    if isinstance(error, ClientError):
        return understand_answer(error.response)
    return Fault(_unanswered(error), type(error).__name__, {})


def understand_answer(response: Mapping[str, Any]) -> Fault:
    """What an answer means that tells of a failure."""
    code = str(response.get("Error", {}).get("Code", ""))
    if code == "TransactionCanceledException":
        return _cancelled(response.get("CancellationReasons", ()))
    kind = _CODES.get(code)
    if kind is None:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = Kind.BROKEN if status >= _SERVER_ERRORS else Kind.BUG
    rows = {0: response.get("Item")} if kind is Kind.CONDITION else {}
    return Fault(kind, code, rows)


def _cancelled(reasons: Sequence[Mapping[str, Any]]) -> Fault:
    codes = [str(reason.get("Code") or "") for reason in reasons]
    kinds = {
        place: _REASONS.get(code, Kind.BUG)
        for place, code in enumerate(codes)
        if code not in _NO_REASON
    }
    kind = next((each for each in _GRAVEST_FIRST if each in kinds.values()), Kind.BUG)
    rows = {
        place: reasons[place].get("Item") for place, each in kinds.items() if each is Kind.CONDITION
    }
    return Fault(kind, ", ".join(code or "None" for code in codes) or "no reasons given", rows)


def _unanswered(error: Exception) -> Kind:
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return Kind.UNAVAILABLE
    if isinstance(error, NotConnected) and not isinstance(error, SSLError):
        return Kind.NOT_SENT
    # From here on a connection stood, so the request may have arrived.
    is_broken = isinstance(error, HTTPClientError | IncompleteReadError | SSLError | ChecksumError)
    return Kind.BROKEN if is_broken else Kind.BUG


def denied(error: Exception) -> tuple[str, str] | None:
    """The action that is missing and what it was asked for, as AWS tells them; None when it
    doesn't.

    A transaction is allowed or not by the actions of its parts, so the request's own name would
    mislead.
    """
    told = (
        error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
    )
    found = _DENIED.search(told)
    return None if found is None else (found["action"], found["resource"] or "")
