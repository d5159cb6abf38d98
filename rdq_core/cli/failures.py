"""Errors as the command line tells them: one line, and an exit code that scripts can rely on.

0 done · 1 our bug · 2 wrong use or input · 3 not found · 4 conflict · 5 AWS not reachable, not
allowed, no table
"""

import itertools
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Final

from rdq_core import errors
from rdq_core.cli.screen import escaped
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
_BY_CODE: Final[Mapping[str, int]] = {kind.default_code: code for kind, code in _CODES.items()}
"""For errors that come from elsewhere and have kept nothing but their code."""
_CHECK_THE_WAY: Final = "check AWS_ENDPOINT_URL, the region and the network, then try again"
_JSON_FLAGS: Final = frozenset(
    {"--json", "-ojson", "-ojsonl", "-o=json", "-o=jsonl", "--output=json", "--output=jsonl"}
)


class Misuse(errors.RdqError):
    """The command line itself is wrong: an option that is missing, unknown, or at odds with
    another.
    """

    default_code = "usage"


def exit_code(error: errors.RdqError) -> int:
    """The exit code of an error that rdq raises on purpose."""
    if isinstance(error, Misuse):
        return WRONG_USE
    by_kind = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    return _BY_CODE.get(error.code, BUG) if by_kind is None else by_kind


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors should be JSON, asked before anything is known to be right about the
    arguments.
    """
    pairs = itertools.pairwise(arguments)
    return not _JSON_FLAGS.isdisjoint(arguments) or any(
        option in ("-o", "--output") and value in ("json", "jsonl") for option, value in pairs
    )


def tell(error: errors.RdqError, *, as_json: bool) -> None:
    """Print an error on standard error: one line of JSON, or a sentence and what to do."""
    if isinstance(error, errors.StoreFailed):
        error.hint = error.hint or _CHECK_THE_WAY
    if as_json:
        sys.stderr.write(json.dumps({"error": error.as_dict()}) + "\n")
        return
    sys.stderr.write(f"rdq: {escaped(error.message)}\n")
    for line in (error.hint or "").splitlines():
        sys.stderr.write(f"     {escaped(line)}\n")


def tell_bug(bug: BaseException, *, as_json: bool, debug: bool) -> None:
    """Print that rdq is at fault. A foreign exception's message may be private, so it is told with
    --debug only.
    """
    if debug:
        traceback.print_exception(bug)
        return
    frames = traceback.extract_tb(bug.__traceback__)
    place = f" at {frames[-1].name}:{frames[-1].lineno}" if frames else ""
    told = errors.RdqError(
        f"this is a bug in rdq: {type_name(bug)}{place}",
        hint="run it again with --debug, and report what that prints",
    )
    tell(told, as_json=as_json)


def of_aws(error: BaseException) -> errors.RdqError | None:
    """What botocore raised, outside of the store, in rdq's words; None for what isn't its own, or
    is a bug of ours.
    """
    if not type(error).__module__.startswith("botocore") or not isinstance(error, Exception):
        return None
    from rdq_core.stores.dynamodb.faults import FaultKind, endpoint_of, understand

    fault = understand(error)
    if fault.kind is FaultKind.BUG:
        return None
    action = getattr(error, "operation_name", None)
    if "Credentials" in fault.code:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        return errors.Unavailable(f"there are no AWS credentials: {fault.code}", hint=hint)
    if "AccessDenied" in fault.code:
        return errors.Unavailable(
            f"not allowed: dynamodb:{action}", hint="give the caller's role this action"
        )
    told = f"DynamoDB did not do {action}" if action else "AWS is not reachable"
    place = f" at {found}" if (found := endpoint_of(error)) else ""
    return errors.Unavailable(f"{told}{place}: {fault.code}", hint=_CHECK_THE_WAY)
