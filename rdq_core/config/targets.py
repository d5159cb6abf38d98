"""Where a handler ref runs when the host's own registry doesn't know it: a Lambda function and how
to talk to it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rdq_core.config.plain import Plain


class Invocation(StrEnum):
    """Whether the sweep waits for the answer, or hands the claim over to the function."""

    SYNC = "sync"
    ASYNC = "async"


class Deliver(StrEnum):
    """What the function gets: the payload as its own event, or rdq's envelope around it."""

    RAW = "raw"
    ENVELOPE = "envelope"


class Answer(StrEnum):
    """How a function that gets raw payloads tells failure, when it doesn't raise."""

    PLAIN = "plain"
    HTTP = "http"
    SQS = "sqs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeField:
    """Plain answers that tell their outcome in a field. A value on none of the lists is retryable,
    never success.
    """

    field: str
    success: tuple[str, ...] = ()
    retryable: tuple[str, ...] = ()
    permanent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTarget:
    """A function for one handler ref. `answer` is for raw deliveries alone, `outcome` is read for
    plain answers alone.

    `deliver` is `raw` unless said, or `envelope` for a hand-over, which can't be raw: it carries
    only a reference.
    """

    function: str
    invocation: Invocation = Invocation.SYNC
    deliver: Deliver = Deliver.RAW
    answer: Answer = Answer.PLAIN
    handler_version: str | None = None
    outcome: OutcomeField | None = None

    @classmethod
    def from_plain(cls, plain: Plain) -> "HandlerTarget":
        """The target that a `handlers` entry describes, its relations checked; ConfigInvalid when
        it makes no sense.
        """
        invocation = plain.choice("invocation", Invocation, Invocation.SYNC)
        usual = Deliver.ENVELOPE if invocation is Invocation.ASYNC else Deliver.RAW
        target = cls(
            function=plain.text("function"),
            invocation=invocation,
            deliver=plain.choice("deliver", Deliver, usual),
            answer=plain.choice("answer", Answer, Answer.PLAIN),
            handler_version=plain.optional_text("handler_version"),
            outcome=_outcome(plain.section("outcome")) if plain.has("outcome") else None,
        )
        _check_relations(plain, target)
        return target

    def to_plain(self) -> dict[str, Any]:
        """The entry that describes this target, leaving out what it doesn't have."""
        plain: dict[str, Any] = {
            "function": self.function,
            "invocation": str(self.invocation),
            "deliver": str(self.deliver),
        }
        if self.deliver is Deliver.RAW:
            plain["answer"] = str(self.answer)
        if self.handler_version is not None:
            plain["handler_version"] = self.handler_version
        if self.outcome is not None:
            plain["outcome"] = _plain_outcome(self.outcome)
        return plain


def _outcome(plain: Plain) -> OutcomeField:
    return OutcomeField(
        field=plain.text("field"),
        success=plain.texts("success"),
        retryable=plain.texts("retryable"),
        permanent=plain.texts("permanent"),
    )


def _plain_outcome(outcome: OutcomeField) -> dict[str, Any]:
    lists = {
        "success": outcome.success,
        "retryable": outcome.retryable,
        "permanent": outcome.permanent,
    }
    return {"field": outcome.field} | {
        name: list(values) for name, values in lists.items() if values
    }


def _check_relations(plain: Plain, target: HandlerTarget) -> None:
    if target.invocation is Invocation.ASYNC and target.deliver is Deliver.RAW:
        raise plain.refuse(
            "deliver", "envelope, because an async hand-over sends only a reference to the task"
        )
    if plain.has("answer") and target.deliver is not Deliver.RAW:
        raise plain.refuse(
            "answer", "no answer at all with deliver envelope, which states its outcome itself"
        )
    if target.outcome is None:
        return
    if target.deliver is not Deliver.RAW:
        raise plain.refuse(
            "outcome", "no outcome at all with deliver envelope, which states its outcome itself"
        )
    _check_distinct(plain.section("outcome"), target.outcome)


def _check_distinct(plain: Plain, outcome: OutcomeField) -> None:
    seen: dict[str, str] = {}
    for name in ("success", "retryable", "permanent"):
        for value in getattr(outcome, name):
            if seen.setdefault(value, name) != name:
                raise plain.refuse(
                    name, f"each value on one list only; {value!r} is on {seen[value]} as well"
                )
