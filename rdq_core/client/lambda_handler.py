"""`lambda_handler`: an application's Lambda function as the handler of tasks.

    delivery     the event has the whole task; the answer has the outcome; the sweeper settles it
    hand-over    the event has a claim; this function adopts it, keeps the lease and settles it

The invariant: the reported outcome is what happened. When a handler ignores the end of its time, a
timeout is reported and the process ends, so that it can't continue in a later invocation.
"""

import base64
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.client.rdq import Rdq, parts_of
from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import AttemptError, Outcome
from rdq_core.domain.classification import ClassifiedOutcome
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.task import Task
from rdq_core.domain.times import span_millis
from rdq_core.engine.ports import Clock, Handler
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.routing import Router
from rdq_core.engine.run import Runner, RunParts, RunResult
from rdq_core.engine.stopping import Stop
from rdq_core.errors import InputInvalid, LeaseLost, NotRegistered
from rdq_core.handlers.aws_lambda.handler_events import NAME, Delivery, HandOver, read_event
from rdq_core.handlers.decoding import read_json
from rdq_core.handlers.encoding import JSON
from rdq_core.handlers.registry import Registry
from rdq_core.handlers.typed import TaskDefinition
from rdq_core.runtime.invocation import remaining_of, worker_name
from rdq_core.runtime.system import SystemClock
from rdq_core.runtime.wiring import Parts
from rdq_core.stores.dynamodb.clock import StorageClock

MARGIN: Final = timedelta(seconds=2)
"""The part of the invocation's time that is reserved for reporting the outcome."""
_SECONDS_TO_STOP: Final = 1.0
"""How long a cancelled handler may take to stop before the process is ended."""

LambdaEntry = Callable[[Any, Any], dict[str, Any]]


def lambda_handler(
    rdq: Rdq,
    ref: str,
    function: Callable[..., Any] | TaskDefinition[Any, Any],
    *,
    version: str | None = None,
    outcome: OutcomeMapper | None = None,
    machine: Clock | None = None,
    end_process: Callable[[int], object] = os._exit,
) -> LambdaEntry:
    """A Lambda handler that runs `function` for tasks whose queue names it in `handlers`.

    It serves `deliver: envelope` and `invocation: async`. `function`, `version` and `outcome` are
    those of `Registry.register`; a typed task has its own. With `envelope` the answer reports the
    outcome to the sweeper. With `async` this function writes it, and needs the sweeper's rights on
    the tables. An event that isn't rdq's raises InputInvalid: use `deliver: raw` for a function
    that has other callers too.

    `machine` is the clock of synchronous calls, and `end_process` ends a process whose handler
    ignored the end of its time; both are for tests.
    """
    registry = Registry()
    if isinstance(function, TaskDefinition):
        registry.add(function)
    else:
        registry.register(ref, function, version=version, outcome=outcome)
    handler = registry.find(ref)
    if handler is None:
        raise NotRegistered(
            f"the typed task given as {ref!r} has another name", hint="pass its own name as ref"
        )
    return _Entry(parts_of(rdq), registry, handler, machine or SystemClock(), end_process)


class _Entry:
    """The callable that `lambda_handler` returns."""

    def __init__(
        self,
        parts: Parts,
        registry: Registry,
        handler: Handler,
        machine: Clock,
        end_process: Callable[[int], object],
    ) -> None:
        self._parts = parts
        self._registry = registry
        self._handler = handler
        self._machine = machine
        self._end_process = end_process

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Run the event's task. Raises InputInvalid for an event that isn't rdq's; StoreFailed."""
        message = read_event(event)
        if message is None:
            raise InputInvalid(
                "event",
                "is not rdq's",
                hint="deliver: envelope, or invocation: async, in the queue's handlers",
            )
        if isinstance(message, HandOver):
            return self._adopt(message, context)
        return self._answer(message, context)

    # -- async -------------------------------------------------------------------------------------

    def _adopt(self, hand_over: HandOver, context: Any) -> dict[str, Any]:
        parts = self._parts
        settings = parts.queues.settings(
            hand_over.queue, definition=self._handler.definition or None
        )
        if isinstance(parts.clock, StorageClock):
            parts.clock.forget()  # Lambda may have frozen the process since the clock was last set
        now = parts.clock.now()
        grant = Grant(
            token=parts.ids.token(), now=now, lease_expires_at=now + settings.execution.lease
        )
        try:
            claim = parts.store.adopt(hand_over.task_id, hand_over.token, grant)
        except LeaseLost:
            # The event came twice, or so late that a sweeper has taken the claim back.
            return {NAME: {"adopted": False}}
        stopped, stop = threading.Event(), Stop()
        resolver = Resolver(
            parts.store,
            clock=parts.clock,
            jitter=parts.jitter,
            events=parts.events,
            worker=worker_name(context),
        )
        runner = self._runner(parts.store, parts.clock, resolver)
        resolution = runner.run(claim, _within(settings, context), stop, on_handler_end=stopped.set)
        self._end_with_handler(stopped)
        return {NAME: {"adopted": True, "resolution": str(resolution)}}

    # -- sync --------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery, context: Any) -> dict[str, Any]:
        task, now, stopped = delivery.task, self._machine.now(), threading.Event()
        claim = Claim(
            task=task,
            token="",
            fencing_token=delivery.fencing_token,
            claimed_at=now,
            lease_expires_at=delivery.deadline,
            history_length=delivery.attempt_no - 1,
        )
        settings = _within(_settings_until(task.queue, delivery.deadline - now), context)
        runner = self._runner(_Delivered(), self._machine, None)
        ended = runner.execute(claim, settings, Stop(), on_handler_end=stopped.set)
        self._end_with_handler(stopped)
        return {NAME: _outcome(ended, self._machine.now())}

    def _runner(self, store: Any, clock: Clock, resolver: Resolver | None) -> Runner:
        parts = self._parts
        resolver = resolver or Resolver(
            parts.store, clock=clock, jitter=parts.jitter, events=parts.events, worker=worker_name()
        )
        return Runner(
            RunParts(
                store=store,
                router=Router(self._registry),
                resolver=resolver,
                clock=clock,
                sleeper=parts.busy,
                on_error=parts.on_error,
            )
        )

    def _end_with_handler(self, stopped: threading.Event) -> None:
        """End the process if the handler doesn't stop.

        Lambda freezes the process, and the handler would continue in a later invocation.
        """
        if not self._parts.busy.wait(stopped, _SECONDS_TO_STOP):
            self._end_process(1)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """The store of a delivered task: the event has the task, and the sweeper keeps the lease."""

    def load(self, claim: Claim) -> Task:
        return claim.task

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """Nothing to do: the sweeper that waits for the answer keeps the lease."""


def _settings_until(queue: str, time: timedelta) -> QueueSettings:
    settings = QueueSettings.from_plain({"queue": queue})
    # `filled`, not `replace`: the time is computed, and need not be one that a file could give.
    execution = settings.execution.filled(handler_timeout=time, heartbeat="off")
    return settings.filled(execution=execution)


def _within(settings: QueueSettings, context: Any) -> QueueSettings:
    """The settings with a handler timeout within the remaining time of the invocation."""
    remaining = remaining_of(context)
    if remaining is None:
        return settings
    timeout = min(settings.execution.handler_timeout, max(remaining - MARGIN, timedelta(0)))
    return settings.filled(execution=settings.execution.filled(handler_timeout=timeout))


# -- the answer ------------------------------------------------------------------------------------


def _outcome(ended: RunResult, now: datetime) -> dict[str, Any]:
    verdict = ended.classified
    if verdict is None:  # stopped before the handler began, so nothing ran
        return {"error": {"type": "rdq.Unavailable", "message": "the function was ending"}}
    if verdict.error is None:
        return {"outcome": str(Outcome.SUCCESS), **_result(ended.result)}
    answer: dict[str, Any] = {"error": _error(verdict.error, verdict)}
    # No rule of this function matched. Without an outcome, the queue's rules decide.
    if verdict.rule != "default":
        answer["outcome"] = str(verdict.outcome)
    if verdict.not_before is not None:
        answer["retry_after_ms"] = max(span_millis(verdict.not_before - now), 0)
    return answer


def _error(error: AttemptError, verdict: ClassifiedOutcome) -> dict[str, Any]:
    fields = {
        "type": error.type,
        "message": error.message,
        "code": error.code,
        "detail": error.detail,
        "stack": error.stack,
        "fingerprint": verdict.fingerprint,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _result(result: Result) -> dict[str, Any]:
    if result.content is None:
        return {}
    if result.content_type == JSON:
        return {"result": read_json(result.content)}
    return {
        "result_base64": base64.b64encode(result.content).decode(),
        "result_content_type": result.content_type,
    }
