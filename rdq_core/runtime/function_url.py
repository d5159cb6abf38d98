"""Calls of the ops function's URL: what an event of one says, each part checked, and who has sent
it.

The invariant: an identity counts as verified only in an invocation of the alias that has the URL.
Nothing in the event proves where it comes from: whoever may invoke the function can send the same
bytes. The alias is proof because rdq's policies let nobody invoke it but through the URL.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES
from rdq_core.domain.text import truncate
from rdq_core.engine.auditor import Principal
from rdq_core.errors import InputInvalid
from rdq_core.runtime.problems import Forbidden

ALIAS: Final = "url"
"""The alias of the function that has the URL, and nothing else."""
_QUALIFIER_AT: Final = 7
"""arn : partition : lambda : region : account : function : name : qualifier, the last one missing
from most ARNs.
"""
_LONGEST_METHOD: Final = 16
_EXAMPLE: Final = '{"op": "status"}'


def is_call(event: object) -> bool:
    """Whether an event is, or wants to be, one of a function URL."""
    return isinstance(event, Mapping) and "requestContext" in event


def request_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """The document that was sent. Raises InputInvalid naming the part of the event that is wrong."""
    method = _text(_object(event, "requestContext", "http"), "requestContext.http.method")
    if method != "POST":
        told = method[:_LONGEST_METHOD] or "missing"
        raise InputInvalid("method", f"is {told}; operator requests are sent by POST")
    body = _text(event, "body")
    try:
        text = base64.b64decode(body, validate=True) if _truth(event, "isBase64Encoded") else body
        document = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        raise InputInvalid("body", "is not JSON", hint=_EXAMPLE) from None
    return object_of("body", document)


def caller_of(event: Mapping[str, Any], context: object) -> Principal:
    """Whom IAM has let in, as the event says. Raises Forbidden without one: then the URL is open to
    everybody.

    `context` is the invocation's. Only one of the URL's alias vouches for the event.
    """
    arn = _text(
        _object(event, "requestContext", "authorizer", "iam"),
        "requestContext.authorizer.iam.userArn",
    )
    if not arn:
        raise Forbidden("this function URL has no IAM auth", hint="give it AuthType: AWS_IAM")
    invoked = str(getattr(context, "invoked_function_arn", "")).split(":")
    return Principal(
        truncate(arn, MAX_SHORT_TEXT_BYTES), verified=invoked[_QUALIFIER_AT:] == [ALIAS]
    )


def object_of(name: str, value: object) -> dict[str, Any]:
    """A request's document. Raises InputInvalid for what is none."""
    if not isinstance(value, Mapping):
        raise InputInvalid(name, "must be an object with op", hint=_EXAMPLE)
    return dict(value)


def _object(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """An object inside of objects; an empty one where there is none."""
    for depth, name in enumerate(path, start=1):
        inner = event.get(name)
        if not isinstance(inner, Mapping | None):
            raise InputInvalid(".".join(path[:depth]), "must be an object")
        event = inner or {}
    return event


def _text(told: Mapping[str, Any], path: str) -> str:
    """A text, empty where there is none. `path` ends in its name."""
    value = told.get(path.rpartition(".")[2])
    if not isinstance(value, str | None):
        raise InputInvalid(path, "must be text")
    return value or ""


def _truth(told: Mapping[str, Any], name: str) -> bool:
    value = told.get(name)
    if not isinstance(value, bool | None):
        raise InputInvalid(name, "must be true or false")
    return bool(value)
