"""From a document to the model that understands it, and to its answer."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from rdq_core.errors import InputInvalid
from rdq_core.ops.requests import audits, dead_letters, jobs, queues, tasks
from rdq_core.ops.requests.desks import Desks, Document, Request, Who

OPERATIONS: Final[Mapping[str, type[Request]]] = {
    model.op: model
    for module in (queues, dead_letters, tasks, jobs, audits)
    for model in module.REQUESTS
}
"""Every operation with its request."""

_LONGEST_NAME: Final = 80


def answer(document: Mapping[str, Any], desks: Desks, who: Who) -> Document:
    """Answer one request. Raises InputInvalid naming the first field that is wrong, and whatever
    the request raises.
    """
    op = document.get("op")
    model = OPERATIONS.get(op) if isinstance(op, str) else None
    if model is None:
        raise InputInvalid("op", "is none of the operations", hint=_nearest(op))
    try:
        request = model.model_validate(
            {name: value for name, value in document.items() if name != "op"}
        )
    except ValidationError as refused:
        raise _refusal(refused) from None
    return request.answer(desks, who)


def _refusal(refused: ValidationError) -> InputInvalid:
    """The first problem, with its place and without the value."""
    first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
    return InputInvalid(
        ".".join(str(step)[:_LONGEST_NAME] for step in first["loc"]) or "request", first["msg"]
    )


def _nearest(op: object) -> str:
    near = (
        difflib.get_close_matches(op[:_LONGEST_NAME], OPERATIONS, n=1)
        if isinstance(op, str)
        else ()
    )
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(OPERATIONS))}"
