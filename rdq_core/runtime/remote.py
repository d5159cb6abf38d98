"""Operator requests through the ops function, for callers without access to the tables."""

import json
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.errors import RdqError, Unavailable
from rdq_core.runtime.wiring import lambda_client

_SECONDS: Final = 60


def ask_function(function: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the ops function of this name.

    Raises the error in the answer, and Unavailable when the function can't be invoked or failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = lambda_client(_SECONDS).invoke(
            FunctionName=function, Payload=json.dumps(document).encode()
        )
    except ClientError as refused:
        raise _refused(function, refused) from None
    except BotoCoreError as failed:
        raise Unavailable(f"{function} could not be invoked: {type(failed).__name__}") from None
    if "FunctionError" in answer:
        raise Unavailable(f"{function} failed ({answer['FunctionError']})", hint="see its log")
    content = json.loads(answer["Payload"].read())
    if not isinstance(content, dict):
        raise Unavailable(
            f"{function} is not an ops function of rdq: its answer is not a JSON object",
            hint="name the stack's ops function",
        )
    if "problem" in content:
        raise _error(content["problem"])
    return content


def _refused(function: str, refused: Any) -> Unavailable:
    code = refused.response["Error"]["Code"]
    if code.startswith("AccessDenied"):
        return Unavailable(
            f"lambda:InvokeFunction on {function} is not allowed",
            hint="give the caller's role this action",
        )
    if code == "ResourceNotFoundException":
        return Unavailable(f"there is no function {function}", hint="name the stack's ops function")
    return Unavailable(f"{function} could not be invoked: {code}")


def _error(problem: Mapping[str, Any]) -> RdqError:
    """The error in an answer, identified by its code."""
    return RdqError(
        problem["detail"], code=problem["code"], task_id=problem.get("id"), hint=problem.get("hint")
    )
