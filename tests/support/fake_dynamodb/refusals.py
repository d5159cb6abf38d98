"""Refusals as botocore raises them."""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

_STATUS = {"InternalServerError": 500, "ServiceUnavailable": 503}


def refusal(code: str, message: str, operation: str, **more: Any) -> ClientError:
    """The error of a request that DynamoDB refuses. `more` stands at the top level of the
    answer.
    """
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": _STATUS.get(code, 400)},
        **more,
    }
    return ClientError(response, operation)


def invalid(message: str, operation: str) -> ClientError:
    """A request that is wrong in itself."""
    return refusal("ValidationException", message, operation)


def condition_failed(operation: str, item: Mapping[str, Any] | None) -> ClientError:
    """A condition that does not hold; the item comes back where it was asked for and there is
    one.
    """
    came_back = {} if item is None else {"Item": dict(item)}
    return refusal(
        "ConditionalCheckFailedException", "The conditional request failed", operation, **came_back
    )


def cancelled(reasons: Sequence[Mapping[str, Any]]) -> ClientError:
    """A transaction of which nothing was carried out, with the reason of each of its parts."""
    codes = ", ".join(str(reason["Code"]) for reason in reasons)
    message = (
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    )
    return refusal(
        "TransactionCanceledException",
        message,
        "TransactWriteItems",
        CancellationReasons=[*map(dict, reasons)],
    )
