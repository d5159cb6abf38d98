"""How errors are printed: a line on standard error, and an exit code that scripts can rely on.

0 done · 1 bug in rdq · 2 wrong usage or input · 3 not found · 4 conflict · 5 AWS unreachable or
access denied, or a table is missing · 130 interrupted
"""

import itertools
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rdq_core import errors
from rdq_core.cli.output import escaped, note
from rdq_core.domain.attempt import type_name

DONE: Final = 0
BUG: Final = 1
WRONG_USE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
UNAVAILABLE: Final = 5
INTERRUPTED: Final = 130

_CODES: Final[Mapping[type[errors.RdqError], int]] = {
    errors.InputInvalid: WRONG_USE,
    errors.OutputInvalid: WRONG_USE,
    errors.ConfigInvalid: WRONG_USE,
    errors.NotRegistered: WRONG_USE,
    errors.TaskNotFound: NOT_FOUND,
    errors.QueueNotFound: NOT_FOUND,
    errors.TaskConflict: CONFLICT,
    errors.ConfigConflict: CONFLICT,
    errors.StaleCursor: CONFLICT,
    errors.LeaseLost: CONFLICT,
    errors.StoreFailed: UNAVAILABLE,
    errors.Unavailable: UNAVAILABLE,
    errors.CorruptItem: UNAVAILABLE,
}
# An error that the ops function returned has lost its class and kept its code.
_BY_CODE: Final[Mapping[str, int]] = {kind.default_code: code for kind, code in _CODES.items()}
_CHECK_CONNECTION: Final = "check AWS_ENDPOINT_URL, the region and the network, then try again"
_JSON_FLAGS: Final = frozenset(
    {"--json", "-ojson", "-ojsonl", "-o=json", "-o=jsonl", "--output=json", "--output=jsonl"}
)


class UsageError(errors.RdqError):
    """The command line is wrong: an option is missing, unknown or contradicts another."""

    default_code = "usage"


def exit_code(error: errors.RdqError) -> int:
    """The exit code of an error that rdq raises on purpose."""
    if isinstance(error, UsageError):
        return WRONG_USE
    by_kind = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    return _BY_CODE.get(error.code, BUG) if by_kind is None else by_kind


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are printed as JSON. Works on arguments that have not been validated."""
    pairs = itertools.pairwise(arguments)
    return not _JSON_FLAGS.isdisjoint(arguments) or any(
        option in ("-o", "--output") and value in ("json", "jsonl") for option, value in pairs
    )


def print_error(error: errors.RdqError, *, as_json: bool) -> None:
    """Print an error on standard error: one line of JSON, or a sentence and a hint."""
    if isinstance(error, errors.StoreFailed):
        error.hint = error.hint or _CHECK_CONNECTION
    if as_json:
        sys.stderr.write(json.dumps({"error": error.as_dict()}) + "\n")
        return
    sys.stderr.write(f"rdq: {escaped(error.message)}\n")
    for line in (error.hint or "").splitlines():
        sys.stderr.write(f"     {escaped(line)}\n")


def print_bug(bug: BaseException, *, as_json: bool, debug: bool) -> None:
    """Print an exception that rdq did not expect.

    Its message may hold private data, so only --debug shows it.
    """
    if debug:
        traceback.print_exception(bug)
        return
    frames = traceback.extract_tb(bug.__traceback__)
    place = f" at {frames[-1].name}:{frames[-1].lineno}" if frames else ""
    report = errors.RdqError(
        f"this is a bug in rdq: {type_name(bug)}{place}",
        hint="run it again with --debug, and report what that prints",
    )
    print_error(report, as_json=as_json)


def refusal(document: Mapping[str, Any]) -> errors.RdqError:
    """An error of an answer's document, as an exception."""
    return errors.RdqError(
        document["message"], code=document["code"], task_id=document["id"], hint=document["hint"]
    )


def remainder(result: Mapping[str, Any]) -> str:
    """The counts of tasks that a change skipped or failed on, to end a sentence; empty if none."""
    return "".join(f", {result[word]:,} {word}" for word in ("skipped", "failed") if result[word])


def print_refusals(result: Mapping[str, Any], *, as_json: bool) -> int | None:
    """Print why tasks were not changed, on standard error. Returns the exit code of the change."""
    refusals = result.get("refusals", [])
    for each in refusals[:1] if as_json else refusals:
        print_error(refusal(each), as_json=as_json)
    unlisted = result["skipped"] + result["failed"] - len(refusals)
    if not as_json and refusals and unlisted > 0:
        note(f"     and {unlisted:,} more")
    if result["failed"]:
        return UNAVAILABLE
    return CONFLICT if result["skipped"] and not result.get("preview") else None


def from_aws(error: BaseException) -> errors.RdqError | None:
    """A botocore error raised outside the store, as an rdq error.

    None for exceptions of other libraries and for calls that rdq got wrong.
    """
    if not type(error).__module__.startswith("botocore") or not isinstance(error, Exception):
        return None
    from rdq_core.stores.dynamodb.request_failures import FailureKind, endpoint_of, understand

    fault = understand(error)
    if fault.kind is FailureKind.BUG:
        return None
    action = getattr(error, "operation_name", None)
    if "Credentials" in fault.code:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        return errors.Unavailable(f"no AWS credentials found: {fault.code}", hint=hint)
    if "AccessDenied" in fault.code:
        return errors.Unavailable(
            f"access denied: dynamodb:{action}", hint="allow this action in the role you use"
        )
    message = f"DynamoDB {action} failed" if action else "cannot reach AWS"
    place = f" at {url}" if (url := endpoint_of(error)) else ""
    return errors.Unavailable(f"{message}{place}: {fault.code}", hint=_CHECK_CONNECTION)
