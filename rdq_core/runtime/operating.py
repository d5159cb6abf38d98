"""The ops function: answers operator requests and CloudFormation.

Requests come directly, through a function URL, or as a CloudFormation custom resource. The
invariant: every event gets an answer within Lambda's size limit, and an audit record marks a caller
as verified only if IAM authenticated it, which only the function URL does.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES
from rdq_core.domain.text import truncate
from rdq_core.engine.auditor import Principal
from rdq_core.errors import InputInvalid
from rdq_core.ops.requests import answer as answer_request
from rdq_core.runtime import function_url
from rdq_core.runtime.cloudformation import CustomResource
from rdq_core.runtime.invocation import remaining_of
from rdq_core.runtime.log import log_error
from rdq_core.runtime.problems import problem_of
from rdq_core.runtime.wiring import Parts

MOST_BYTES: Final = 5 * 1024 * 1024
"""The largest answer. Lambda's own limit is 6 MB, and escaping may add to an answer on its way."""
_UNKNOWN: Final = Principal("unknown", verified=False)


class OpsFunction:
    """Answers operator requests and CloudFormation."""

    def __init__(self, parts: Parts, resource: CustomResource | None = None) -> None:
        self._parts = parts
        self._resource = resource or CustomResource(parts)

    def answer(self, event: Any, context: Any = None) -> Any:
        """The answer to an event. Raises nothing."""
        if isinstance(event, Mapping) and "ResponseURL" in event and "RequestType" in event:
            return self._resource.handle(event, remaining_of(context))
        if function_url.is_call(event):
            return self._over_http(event, context)
        try:
            document = function_url.object_of("event", event)
            return self._answer(document, _claimed(document.pop("principal", None)))
        except Exception as error:  # noqa: BLE001 - the caller gets every error as a problem
            return {"problem": _problem(error)}

    def _over_http(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        try:
            who = function_url.caller_of(event, context)
            return _response(
                200, self._answer(function_url.request_of(event), who), "application/json"
            )
        except Exception as error:  # noqa: BLE001 - the same
            problem = _problem(error)
            return _response(problem["status"], problem, "application/problem+json")

    def _answer(self, document: Mapping[str, Any], who: Principal) -> dict[str, Any]:
        """The answer, cut to a size that Lambda returns: a page is halved until it fits."""
        while True:
            answer = answer_request(document, self._parts, lambda: who)
            excess = len(json.dumps(answer).encode()) - MOST_BYTES
            if excess <= 0:
                return answer
            size = document.get("page_size", 50)
            if (
                "next_cursor" in answer
                and isinstance(size, int)
                and size > 1
                and document["op"] != "dlq.groups"
            ):
                document = {**document, "page_size": size // 2}
            else:
                return _cut(answer)


def _cut(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its largest parts, marked as truncated."""
    if "attempts" in answer:
        lean = [
            {**each, "error": each["error"] and {**each["error"], "stack": None}}
            for each in answer["attempts"]
        ]
        answer = {**answer, "attempts": lean, "truncated": True}
    kept = answer.get("items")
    while isinstance(kept, list) and len(json.dumps(answer).encode()) > MOST_BYTES and kept:
        kept = kept[: len(kept) // 2]
        answer = {**answer, "items": kept, "truncated": True}
    if len(json.dumps(answer).encode()) > MOST_BYTES:
        raise InputInvalid(
            "request",
            "has an answer that is too large for Lambda; ask again with access to the tables",
        )
    return answer


def _claimed(name: object) -> Principal:
    if name is None:
        return _UNKNOWN
    if not isinstance(name, str) or not name:
        raise InputInvalid("principal", "must be text: the caller's name")
    return Principal(truncate(name, MAX_SHORT_TEXT_BYTES), verified=False)


def _problem(error: Exception) -> dict[str, Any]:
    problem = problem_of(error)
    if problem["status"] >= 500:  # noqa: PLR2004 - not the caller's mistake
        log_error(error, where="an operator request")
    return problem


def _response(status: int, document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"content-type": kind}, "body": json.dumps(document)}
