"""Errors as programs get them over HTTP and from the ops function: problem documents (RFC 9457)
with stable codes.
"""

from collections.abc import Mapping
from typing import Any, Final

from rdq_core import errors
from rdq_core.errors import RdqError

_STATUS: Final[Mapping[type[RdqError], tuple[int, str]]] = {
    errors.InputInvalid: (400, "The request is not valid"),
    errors.ConfigInvalid: (400, "The configuration is not valid"),
    errors.TaskNotFound: (404, "There is no such thing"),
    errors.QueueNotFound: (404, "There is no such queue"),
    errors.TaskConflict: (409, "The state forbids it"),
    errors.ConfigConflict: (409, "Somebody else has written it"),
    errors.StaleCursor: (409, "The cursor is stale"),
    errors.StoreFailed: (503, "Storage did not answer"),
    errors.CorruptItem: (500, "Something stored can't be read"),
    errors.Unavailable: (503, "Something is missing or not allowed"),
}
_OURS: Final = (500, "This is a bug in rdq")


class Forbidden(RdqError):
    """The caller is nobody whom AWS vouches for."""

    default_code = "forbidden"


def problem_of(error: BaseException) -> dict[str, Any]:
    """The problem document. Of what is no error of rdq's nothing is told: its message may be
    private.
    """
    if isinstance(error, Forbidden):
        status, title = 403, "Not allowed"
    else:
        status, title = next(
            (told for kind, told in _STATUS.items() if isinstance(error, kind)), _OURS
        )
    code = error.code if isinstance(error, RdqError) else RdqError.default_code
    told = (
        error.as_dict()
        if isinstance(error, RdqError)
        else {"message": "its log tells what", "hint": None, "id": None}
    )
    return {
        "type": f"urn:rdq:problem:{code}",
        "title": title,
        "status": status,
        "detail": told["message"],
        "code": code,
        "id": told["id"],
        "hint": told["hint"],
    }
