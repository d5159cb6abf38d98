"""A bulk operation on dead tasks as an operator ordered it.

An order has the selection of tasks, the operation, its rate, and the canary that must succeed
first.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from rdq_core.config.settings import QueueSettings, RateLimit
from rdq_core.domain import limits
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.domain.units import format_duration, format_rate, parse_duration, parse_rate
from rdq_core.errors import InputInvalid
from rdq_core.ops.selection import Selection

USUAL_RATE: Final = "50/s"
"""The rate of an operation that names none, in a queue without a rate limit."""
MOST_CANARIES: Final = 100
_WAITS: Final = (timedelta(seconds=1), timedelta(hours=24))


class Operation(StrEnum):
    """What is done to dead tasks."""

    REDRIVE = "dlq.redrive"
    PURGE = "dlq.purge"

    @property
    def word(self) -> str:
        """The verb alone."""
        return self.removeprefix("dlq.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The tasks that are sent back first, and watched for `wait` at most.

    The others follow when at least `min_success` of them, from 0 to 1, succeed at their first
    attempt; one that isn't finished in time counts as failed.
    """

    first: int
    wait: timedelta = timedelta(minutes=5)
    min_success: float = 0.9

    def __post_init__(self) -> None:
        if not 1 <= self.first <= MOST_CANARIES:
            raise InputInvalid(
                "canary", f"is {self.first}; 1 to {MOST_CANARIES} tasks can go first"
            )
        if not 0 <= self.min_success <= 1:
            raise InputInvalid(
                "min_success", f"is {self.min_success}; it is a part of the canary, from 0 to 1"
            )
        if not _WAITS[0] <= self.wait <= _WAITS[1]:
            raise InputInvalid("canary_wait", "must be from 1s to 24h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One bulk operation. `rate` is a number of tasks a second, minute or hour, such as `50/s`."""

    operation: Operation
    selection: Selection
    edit: Edit = NO_EDIT
    force: bool = False
    rate: str = USUAL_RATE
    canary: Canary | None = None

    @property
    def pace(self) -> tuple[int, timedelta]:
        """The rate as a number of tasks, and the span for it."""
        return parse_rate(self.rate)

    def to_plain(self) -> dict[str, Any]:
        """The order as JSON data. A payload is never part of it."""
        plain: dict[str, Any] = {"select": self.selection.to_plain(), "rate": self.rate}
        if self.edit != NO_EDIT:
            plain["edit"] = {
                name: value
                for name, value in asdict(self.edit).items()
                if value and name != "payload"
            }
        if self.force:
            plain["force"] = True
        if self.canary is not None:
            wait = format_duration(self.canary.wait)
            plain["canary"] = {
                "first": self.canary.first,
                "wait": wait,
                "min_success": self.canary.min_success,
            }
        return plain

    @classmethod
    def from_plain(cls, operation: str, plain: Mapping[str, Any]) -> "Order":
        """The order that `to_plain` made the data of."""
        canary = plain.get("canary")
        return cls(
            operation=Operation(operation),
            selection=Selection.from_plain(plain["select"]),
            edit=Edit(**plain.get("edit", {})),
            force=plain.get("force") is True,
            rate=plain["rate"],
            canary=None
            if canary is None
            else Canary(**{**canary, "wait": parse_duration(canary["wait"])}),
        )


def check_order(order: Order, settings: QueueSettings) -> None:
    """Raises InputInvalid for parts that exclude each other, or that the queue doesn't allow."""
    check_edit(order.edit, settings, is_one=False)
    check_rate(order.rate)
    if order.selection.ids:
        raise InputInvalid("ids", "are treated at once, not by a job")
    if order.operation is Operation.PURGE and (
        order.canary or order.force or order.edit != NO_EDIT
    ):
        raise InputInvalid(
            "purge",
            "takes neither a canary nor an edit nor force: nothing is run of what is removed",
        )


def check_rate(rate: str) -> None:
    """Raises InputInvalid for a text that is not a rate, and for a rate of 0."""
    try:
        count, _ = parse_rate(rate)
    except ValueError as problem:
        raise InputInvalid("rate", str(problem)) from None
    if not count:
        raise InputInvalid("rate", "is 0: the operation would never end")


def check_edit(edit: Edit, settings: QueueSettings, *, is_one: bool) -> None:
    """Raises InputInvalid for changes that a task of the queue can't have, or that only one task
    can have.
    """
    if edit.handler_ref is not None:
        limits.check_name("handler_ref", edit.handler_ref)
    if edit.handler_version is not None:
        limits.check_text("handler_version", edit.handler_version)
        if edit.unpin:
            raise InputInvalid("handler_version", "excludes unpinning: give one of them")
    if edit.payload is not None:
        limits.check_bytes("payload", edit.payload, most=settings.limits.max_payload_size)
        if not is_one:
            raise InputInvalid("payload", "can be edited for one task id at a time")
    if edit.payload_content_type is not None:
        limits.check_text("payload_content_type", edit.payload_content_type)


def rate_of(settings: QueueSettings) -> str:
    """The rate of an operation that names none: the queue's own limit."""
    limit: RateLimit | None = settings.dispatch.claim_limit
    return USUAL_RATE if limit is None else format_rate(limit.count, limit.period)
