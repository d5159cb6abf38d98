"""A world whose functions the test invokes: what they start and print, and the context that Lambda
gives them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rdq_core.config.settings import Host
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.runtime.sweeping import LambdaInvocation, SweeperFunction, SweepOrder
from rdq_core.runtime.telemetry import MetricsSink
from tests.engine.world import World

ARN = "arn:aws:lambda:eu-central-1:000000000000:function:rdq-sweeper"


@dataclass(slots=True)
class Started:
    """What was started, and the error that starting meets."""

    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    error: Exception | None = None

    def __call__(self, function: str, event: Mapping[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.events.append((function, event))


class Stage:
    """One function's host on a world in memory. Its queue `billing` has the handler `charge`, a
    function.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, **config: Any) -> None:
        handlers = {"charge": {"function": "charge-fn"}}
        self.world = World(
            **{"handlers": handlers, "execution": {"handler_timeout": "10s"}, **config}
        )
        self.world.host = Host.SWEEPER
        self.started = Started()
        self.host = FunctionHost(
            parts=self.world.parts,
            metrics=MetricsSink("test"),
            start=self.started,
            environ={"RDQ_SWEEPER_FUNCTION": ARN, **(environ or {})},
        )

    def submit(self, number: int = 1, **options: Any) -> list[str]:
        options.setdefault("content_type", "application/json")
        return [self.world.submit(b'{"order": 17}', **options) for _ in range(number)]

    def sweep(self, event: object = None, *, seconds: float | None = 60) -> dict[str, Any]:
        remaining = None if seconds is None else timedelta(seconds=seconds)
        invocation = LambdaInvocation(function=ARN, worker="lambda:sweeper/1", remaining=remaining)
        return SweeperFunction(self.host).sweep(SweepOrder.of(event), invocation)
