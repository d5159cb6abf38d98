"""Parses a JSON document into its request, and answers it."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from rdq_core.engine.auditor import Principal
from rdq_core.errors import InputInvalid
from rdq_core.ops.parts import OperatorParts
from rdq_core.ops.requests.context import OPERATIONS, Document, Request, RequestContext
from rdq_core.ops.selection import with_times

_LONGEST_NAME: Final = 80
_PROBLEMS: Final = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is not a field of this request",
}


def answer(
    document: Mapping[str, Any], parts: OperatorParts, principal: Callable[[], Principal]
) -> Document:
    """Answer one request.

    Raises InputInvalid naming the first wrong field, and the errors of the request.
    """
    op = document.get("op")
    model = OPERATIONS.get(op) if isinstance(op, str) else None
    if model is None:
        raise InputInvalid("op", "is not an operation", hint=_nearest(op))
    fields = {str(name): value for name, value in document.items() if name != "op"}
    return _request(model, fields).answer(RequestContext(parts, principal))


def _request(model: type[Request], fields: Mapping[str, Any]) -> Request:
    try:
        return model(**with_times(model, fields))
    except ValidationError as refused:
        raise _refusal(refused) from None


def _refusal(refused: ValidationError) -> InputInvalid:
    """The first problem, with its place and without the value, which may be private."""
    first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
    return InputInvalid(
        ".".join(str(step)[:_LONGEST_NAME] for step in first["loc"]) or "request",
        _PROBLEMS.get(first["type"], first["msg"]),
    )


def _nearest(op: object) -> str:
    near = (
        difflib.get_close_matches(op[:_LONGEST_NAME], OPERATIONS, n=1)
        if isinstance(op, str)
        else ()
    )
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(OPERATIONS))}"
