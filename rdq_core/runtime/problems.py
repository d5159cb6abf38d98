"""Errors as problem documents (RFC 9457) with stable codes, for HTTP and the ops function."""

from collections.abc import Mapping
from typing import Any, Final

from rdq_core import errors
from rdq_core.errors import RdqError

_STATUS: Final[Mapping[type[RdqError], tuple[int, str]]] = {
    errors.InputInvalid: (400, "The request is not valid"),
    errors.ConfigInvalid: (400, "The configuration is not valid"),
    errors.TaskNotFound: (404, "Not found"),
    errors.QueueNotFound: (404, "The queue does not exist"),
    errors.TaskConflict: (409, "The current state does not allow it"),
    errors.ConfigConflict: (409, "The configuration was changed meanwhile"),
    errors.StaleCursor: (409, "The cursor is stale"),
    errors.StoreFailed: (503, "Storage did not answer"),
    errors.CorruptItem: (500, "Something stored can't be read"),
    errors.Unavailable: (503, "Something is missing or not allowed"),
}
_INTERNAL: Final = (500, "This is a bug in rdq")


class Forbidden(RdqError):
    """AWS does not vouch for the caller."""

    default_code = "forbidden"


def problem_of(error: BaseException) -> dict[str, Any]:
    """The problem document.

    The message of any exception but an RdqError is left out, because it may be private.
    """
    if isinstance(error, Forbidden):
        status, title = 403, "Not allowed"
    else:
        status, title = next(
            (answer for kind, answer in _STATUS.items() if isinstance(error, kind)), _INTERNAL
        )
    code = error.code if isinstance(error, RdqError) else RdqError.default_code
    fields = (
        error.as_dict()
        if isinstance(error, RdqError)
        else {"message": "see the function's log", "hint": None, "id": None}
    )
    return {
        "type": f"urn:rdq:problem:{code}",
        "title": title,
        "status": status,
        "detail": fields["message"],
        "code": code,
        "id": fields["id"],
        "hint": fields["hint"],
    }
