"""Where a task runs: on a handler of this host, else on the function that its queue names, else
nowhere.

A function that can't be reached has not run, so that is no attempt and spends no budget. The one
exception is a function that takes hand-overs and never adopts them: from the fifth in a row on it
may be the task that kills it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.targets import HandlerTarget, InvocationMode
from rdq_core.domain.attempt import Code, Outcome
from rdq_core.domain.backoff import BackoffPolicy
from rdq_core.domain.lease import Claim
from rdq_core.engine.ports import Handler, HandlerSource, Invoker

DISPATCH_BACKOFF: Final = BackoffPolicy(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), jitter=0.2
)
"""How long a task waits whose function could not be reached."""
_FREE_HAND_OVERS: Final = 4


class Undelivered(Exception):
    """A handler function has not got the task: nothing was run.

    `code` is UNAVAILABLE where that may pass, NOT_REGISTERED where there is no such function,
    INPUT_INVALID where the payload can't be delivered to any.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Router:
    """The ways to the handlers of one host. Without an `invoker` it knows no functions but its own."""

    handlers: HandlerSource
    invoker: Invoker | None = None

    @property
    def classes(self) -> Mapping[type[BaseException], Outcome]:
        """Exception classes whose outcome is decided in code."""
        return self.handlers.classes

    def handler(self, ref: str, settings: QueueSettings) -> Handler | None:
        """What runs a ref: the host's own registry first, then the queue's `handlers`. None: it is
        unroutable.
        """
        own = self.handlers.find(ref)
        if own is not None or self.invoker is None or ref not in settings.handlers:
            return own
        return self.invoker.handler(ref, settings)

    def target(self, ref: str, settings: QueueSettings) -> HandlerTarget | None:
        """The function that a ref runs on; None where this host runs it itself, or nobody does."""
        if self.invoker is None or self.handlers.find(ref) is not None:
            return None
        return settings.handlers.get(ref)

    def hands_over(self, ref: str, settings: QueueSettings) -> bool:
        """Whether the ref's function takes the claim itself."""
        target = self.target(ref, settings)
        return target is not None and target.invocation is InvocationMode.ASYNC

    def version(self, ref: str, settings: QueueSettings) -> str | None:
        """The version that the ref's function says it has."""
        target = self.target(ref, settings)
        return None if target is None else target.handler_version

    def hand_over(self, claim: Claim, settings: QueueSettings) -> None:
        """Pass the claim on. Raises Undelivered."""
        if self.invoker is None:
            raise Undelivered(Code.NOT_REGISTERED, "this host calls no functions")
        self.invoker.hand_over(claim, settings)


def is_free(lapsed: Claim) -> bool:
    """Whether a lapsed claim costs no attempt: it was handed over, never adopted, and that not too
    often in a row.
    """
    unadopted = 0 if lapsed.unreached is None else lapsed.unreached.unadopted
    return lapsed.handed_over and unadopted < _FREE_HAND_OVERS
