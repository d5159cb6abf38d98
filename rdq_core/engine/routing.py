"""Where a task runs: on a handler of this host, else on the function that its queue names.

A function that can't be reached has not run: no attempt is recorded and no budget spent. The one
exception is a function that is handed a task and never adopts it: from the fifth time in a row on,
the task itself may be what kills it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.targets import HandlerTarget, InvocationMode
from rdq_core.domain.attempt import Code
from rdq_core.domain.backoff import BackoffPolicy
from rdq_core.domain.lease import Claim
from rdq_core.engine.ports import Handler, HandlerSource, Invoker

DISPATCH_BACKOFF: Final = BackoffPolicy(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), jitter=0.2
)
"""The waits of a task whose function could not be reached."""
_FREE_HAND_OVERS: Final = 4
"""Hand-overs in a row that may lapse without an attempt. Later ones count, or a task that kills its
function would be handed over for ever.
"""


class Undelivered(Exception):
    """A handler function did not get the task: nothing was run.

    `code` is UNAVAILABLE when that may pass, NOT_REGISTERED when there is no such function,
    INPUT_INVALID when the payload can't be delivered at all.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Router:
    """Finds the handlers of one host. Without an `invoker` it calls no functions outside of it."""

    handlers: HandlerSource
    invoker: Invoker | None = None

    def handler(self, ref: str, settings: QueueSettings) -> Handler | None:
        """The handler of a ref: the host's own registry first, then the queue's `handlers`. None
        when the ref is unroutable.
        """
        # A handler of this host needs no request, so it goes before a function.
        own = self.handlers.find(ref)
        if own is not None or self.invoker is None or ref not in settings.handlers:
            return own
        return self.invoker.handler(ref, settings)

    def target(self, ref: str, settings: QueueSettings) -> HandlerTarget | None:
        """The function that a ref runs on; None when this host runs it itself, or can't at all."""
        if self.invoker is None or self.handlers.find(ref) is not None:
            return None
        return settings.handlers.get(ref)

    def hands_over(self, ref: str, settings: QueueSettings) -> bool:
        """Whether the ref's function adopts and settles the claim itself."""
        if ref not in settings.handlers:  # most queues name no functions
            return False
        target = self.target(ref, settings)
        return target is not None and target.invocation is InvocationMode.ASYNC

    def version(self, ref: str, settings: QueueSettings) -> str | None:
        """The version that the queue declares for the ref's function."""
        target = self.target(ref, settings)
        return None if target is None else target.handler_version

    def hand_over(self, claim: Claim, settings: QueueSettings) -> None:
        """Hand the claim to the function of its ref. Raises Undelivered."""
        if self.invoker is None:
            raise Undelivered(Code.NOT_REGISTERED, "this host calls no functions")
        self.invoker.hand_over(claim, settings)


def is_free(lapsed: Claim) -> bool:
    """Whether a lapsed claim costs no attempt: it was handed over and never adopted, not too often
    in a row.
    """
    unadopted = 0 if lapsed.unreached is None else lapsed.unreached.unadopted
    return lapsed.handed_over and unadopted < _FREE_HAND_OVERS
