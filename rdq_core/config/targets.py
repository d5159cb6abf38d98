"""The table of settings for handlers: the Lambda functions that run handler refs."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

from rdq_core.config.kinds import TextList, choice, text
from rdq_core.config.sections import Part, Section, Setting, required, section
from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES

_VALUES: Final = TextList(text("a value of the answer's field", MAX_SHORT_TEXT_BYTES))

Texts = Setting[Sequence[str], tuple[str, ...]]
OptionalText = Setting[str, str | None]


class InvocationMode(StrEnum):
    """Whether the sweep waits for the answer, or hands the claim over to the function."""

    SYNC = "sync"
    ASYNC = "async"


class Deliver(StrEnum):
    """What the function gets: the payload as its own event, or rdq's envelope around it."""

    RAW = "raw"
    ENVELOPE = "envelope"


class Answer(StrEnum):
    """How a function that gets raw payloads reports failure, when it doesn't raise."""

    PLAIN = "plain"
    HTTP = "http"
    SQS = "sqs"


@section
class OutcomeField(Section):
    """Answers that report their outcome in a field. A value on no list is retryable, never
    success.
    """

    field: str = required(text("the name of a field of the answer", MAX_SHORT_TEXT_BYTES))
    """The field of the answer that holds the outcome."""
    success: Texts = Setting(None, _VALUES)
    """Values that mean success."""
    retryable: Texts = Setting(None, _VALUES)
    """Values that mean a failure worth another attempt."""
    permanent: Texts = Setting(None, _VALUES)
    """Values that mean a final failure."""

    def broken_relations(self) -> Iterator[tuple[str, str]]:
        """A value on two lists."""
        seen: dict[str, str] = {}
        for name in ("success", "retryable", "permanent"):
            for value in getattr(self, name):
                if (first := seen.setdefault(value, name)) != name:
                    yield name, f"each value on one list only; {value!r} is on {first} as well"


@section
class HandlerTarget(Section):
    """The Lambda function that runs a handler ref."""

    function: str = required(
        text("a Lambda function's name, name:alias or ARN", MAX_SHORT_TEXT_BYTES)
    )
    """The function that gets the task."""
    invocation: Setting[Literal["sync", "async"] | InvocationMode, InvocationMode] = Setting(
        "sync", choice(InvocationMode)
    )
    """Whether to wait for the answer (sync) or to hand the task over (async)."""
    deliver: Setting[Literal["raw", "envelope"] | Deliver, Deliver] = Setting(
        "raw", choice(Deliver)
    )
    """raw sends the payload as the function's own event; envelope wraps it, and is the default of
    async.
    """
    answer: Setting[Literal["plain", "http", "sqs"] | Answer, Answer] = Setting(
        "plain", choice(Answer)
    )
    """How the function reports failure; for raw alone."""
    handler_version: OptionalText = Setting(None, text("a version", MAX_SHORT_TEXT_BYTES))
    """Compared with the version that a task is pinned to."""
    outcome: Setting[OutcomeField, OutcomeField | None] = Setting(
        None, Part(OutcomeField, optional=True)
    )
    """For plain answers that report failure in a field."""

    def resolved(self) -> "HandlerTarget":
        """With `deliver` of a hand-over, which is `envelope` unless given."""
        if self.invocation is InvocationMode.ASYNC and not self.is_given("deliver"):
            return self.filled(deliver=Deliver.ENVELOPE)
        return self

    def to_plain(self) -> dict[str, Any]:
        """The entry that describes this target; an envelope has no `answer`."""
        plain = super().to_plain()
        if self.deliver is Deliver.ENVELOPE:
            del plain["answer"]
        return plain

    def broken_relations(self) -> Iterator[tuple[str, str]]:
        """A hand-over delivers an envelope, and an envelope's answer states its outcome itself."""
        is_async = self.invocation is InvocationMode.ASYNC
        if is_async and self.is_given("deliver") and self.deliver is Deliver.RAW:
            yield (
                "deliver",
                "envelope, because an async hand-over sends only a reference to the task",
            )
        if self.deliver is Deliver.RAW and not is_async:
            return
        for key in ("answer", "outcome"):
            if self.is_given(key):
                yield key, f"no {key} at all with deliver envelope, which states its outcome itself"
