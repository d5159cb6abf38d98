"""Handlers that do what the dice say: succeed, fail in every way, take too long, ignore their
cancellation, or return too much.
"""

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rdq_core.domain.attempt import Outcome
from rdq_core.domain.lifecycle import NO_RESULT, Result
from rdq_core.domain.outcome import Abort, RetryAfter
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import Handler
from tests.simulation.process import Process
from tests.simulation.verdict import require

if TYPE_CHECKING:
    from tests.simulation.world import World

REF: Final = "work"
LARGE: Final = 3000
_MANNERS: Final = {
    "succeeds": 10,
    "returns much": 2,
    "fails": 5,
    "gives up": 1,
    "asks for time": 1,
    "exits": 1,
    "takes long": 2,
    "keeps its lease": 2,
    "never listens": 1,
}


class Handlers:
    """The handlers of one process."""

    classes: Mapping[type[BaseException], Outcome] = {}
    repairs: Sequence[Any] = ()

    def __init__(
        self, world: "World", process: Process, queues: Sequence[str], *, longest: float
    ) -> None:
        self.queues = queues
        self._ending_the_run = world.ending_the_run
        self._process = process
        self._history = world.history
        self._seed, self._long_runs = world.plan.seed, world.plan.long_runs
        self._longest = longest
        self._handler = Handler(
            ref=REF, version=None, decode=lambda task: task, call=self._call, encode=_encoded
        )

    def find(self, handler_ref: str) -> Handler | None:
        """The one handler."""
        return self._handler if handler_ref == REF else None

    def _call(self, task: Any, ctx: TaskContext) -> object:
        with self._ending_the_run():
            self._check_input(task, ctx)
        dice = random.Random(f"{self._seed}/{task.id}/{ctx.attempt_no}")
        is_long = dice.random() < self._long_runs
        manner = (
            "keeps its lease" if is_long else dice.choices([*_MANNERS], [*_MANNERS.values()])[0]
        )
        self._process.sleep(dice.random() * 0.2)
        answer: object = getattr(self, f"_{manner.replace(' ', '_')}")(ctx, dice)
        self._history.returned.add((task.id, ctx.fencing_token))
        return answer

    def _check_input(self, task: Any, ctx: TaskContext) -> None:
        # Two claims may have one fence, when an id is used again within two seconds of its removal.
        known = [
            claim[2]
            for claim in self._history.claims.values()
            if claim[:2] == (task.id, ctx.fencing_token)
        ]
        require("a run is of a claim that was made", bool(known), f"{task.id} {ctx.fencing_token}")
        require("a handler gets what was submitted", task.payload in known, f"task {task.id}")
        require("a run has its attempt's number", ctx.attempt_no >= 1, f"task {task.id}")

    # -- manners -----------------------------------------------------------------------------------

    def _succeeds(self, ctx: TaskContext, _: random.Random) -> bytes:
        return b"done %d" % ctx.fencing_token

    def _returns_much(self, ctx: TaskContext, dice: random.Random) -> bytes:
        return b"done %d" % ctx.fencing_token + dice.randbytes(LARGE)

    def _fails(self, ctx: TaskContext, _: random.Random) -> bytes:
        raise RuntimeError(f"attempt {ctx.attempt_no}")

    def _gives_up(self, ctx: TaskContext, _: random.Random) -> bytes:
        raise Abort("card_refused", f"attempt {ctx.attempt_no}")

    def _asks_for_time(self, ctx: TaskContext, dice: random.Random) -> bytes:
        raise RetryAfter(dice.choice(("1s", "5s", "20s")))

    def _exits(self, ctx: TaskContext, _: random.Random) -> bytes:
        raise SystemExit(3)

    def _takes_long(self, ctx: TaskContext, dice: random.Random) -> bytes:
        ctx.wait(dice.random() * self._longest)
        ctx.check_lease()
        return b"done %d" % ctx.fencing_token

    def _keeps_its_lease(self, ctx: TaskContext, dice: random.Random) -> bytes:
        for _ in range(3):
            ctx.wait(dice.random() * self._longest / 3)
            ctx.heartbeat()
        return b"done %d" % ctx.fencing_token

    def _never_listens(self, ctx: TaskContext, dice: random.Random) -> bytes:
        self._process.sleep(dice.random() * self._longest)
        return b"done %d" % ctx.fencing_token


def _encoded(value: Any) -> Result:
    return NO_RESULT if value is None else Result(content=value, content_type="text/plain")
