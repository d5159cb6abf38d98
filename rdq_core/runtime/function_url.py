"""Events of the ops function's URL: the request in them, each part checked, and the caller.

The invariant: an identity counts as verified only in an invocation of the alias that has the URL.
Nothing in the event proves where it comes from: any caller that may invoke the function can send
the same bytes. The alias is proof because rdq's policies allow invoking it only through the URL.
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
"""The alias of the function that has the URL. Nothing else invokes it."""
_QUALIFIER_AT: Final = 7
"""arn : partition : lambda : region : account : function : name : qualifier; most ARNs have no
qualifier.
"""
_LONGEST_METHOD: Final = 16
_EXAMPLE: Final = '{"op": "status"}'


def is_call(event: object) -> bool:
    """Whether an event has the form of a function URL's."""
    return isinstance(event, Mapping) and "requestContext" in event


def request_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """The document in the body. Raises InputInvalid naming the part of the event that is wrong."""
    method = _text(_object(event, "requestContext", "http"), "requestContext.http.method")
    if method != "POST":
        shown = method[:_LONGEST_METHOD] or "missing"
        raise InputInvalid("method", f"is {shown}; operator requests are sent by POST")
    body = _text(event, "body")
    try:
        text = base64.b64decode(body, validate=True) if _boolean(event, "isBase64Encoded") else body
        document = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        raise InputInvalid("body", "is not JSON", hint=_EXAMPLE) from None
    return object_of("body", document)


def caller_of(event: Mapping[str, Any], context: object) -> Principal:
    """The IAM identity in the event. Raises Forbidden without one: the URL is open to everyone.

    `context` is the invocation's: the identity is verified if it is one of the URL's alias.
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
    """A request's document. Raises InputInvalid unless it is an object."""
    if not isinstance(value, Mapping):
        raise InputInvalid(name, "must be an object with op", hint=_EXAMPLE)
    return dict(value)


def _object(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """A nested object; an empty one where it is missing."""
    for depth, name in enumerate(path, start=1):
        inner = event.get(name)
        if not isinstance(inner, Mapping | None):
            raise InputInvalid(".".join(path[:depth]), "must be an object")
        event = inner or {}
    return event


def _text(values: Mapping[str, Any], path: str) -> str:
    """A text, empty where it is missing. `path` ends in its name."""
    value = values.get(path.rpartition(".")[2])
    if not isinstance(value, str | None):
        raise InputInvalid(path, "must be text")
    return value or ""


def _boolean(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if not isinstance(value, bool | None):
        raise InputInvalid(name, "must be true or false")
    return bool(value)
