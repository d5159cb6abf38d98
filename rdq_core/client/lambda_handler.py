"""`lambda_handler`: a function of the application as the handler of tasks that a sweeper sends it.

    sync     the whole task comes in, and an explicit outcome goes back: the sweeper keeps the lease, and settles
    async    a claim's reference comes in: adopted, kept alive, run and settled here

The invariant: what was reported is what happened. A handler that ignores the end of its time is
reported as timed out, and the process ends, so that nothing of it goes on in a later invocation.
"""

import base64
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rdq_core.client.rdq import Rdq
from rdq_core.config.settings import QueueSettings
from rdq_core.domain.attempt import AttemptError, Outcome
from rdq_core.domain.classification import Verdict
from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.outcome import OutcomeMapper
from rdq_core.domain.task import Task
from rdq_core.domain.times import span_millis
from rdq_core.engine.ports import Clock, Handler
from rdq_core.engine.resolve import Resolver
from rdq_core.engine.routing import Router
from rdq_core.engine.run import Ended, Runner, RunParts
from rdq_core.engine.stopping import Stop
from rdq_core.errors import InputInvalid, LeaseLost, NotRegistered
from rdq_core.handlers.aws_lambda.envelope import (
    NAME,
    Delivery,
    Reference,
    delivery_in,
    reference_in,
    told_by,
)
from rdq_core.handlers.decoding import read_json
from rdq_core.handlers.encoding import JSON
from rdq_core.handlers.registry import Registry
from rdq_core.handlers.typed import TaskDefinition
from rdq_core.runtime.invocation import remaining_of, worker_name
from rdq_core.runtime.system import SystemClock
from rdq_core.runtime.wiring import Parts
from rdq_core.stores.dynamodb.clock import StorageClock

MARGIN: Final = timedelta(seconds=2)
"""What is kept of the invocation's time for telling its outcome."""
_FAREWELL: Final = 1.0
"""How many seconds a handler that was cancelled has to heed it."""

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
    """A Lambda handler that runs `function` for the tasks which the queue's `handlers` send it.

    For `deliver: envelope` and for `invocation: async`. `function`, `version` and `outcome` are as
    `Registry.register` takes them; a typed task brings its own. What it returns or raises is told
    to the sweeper or, handed over, written by this function, which then needs the sweeper's rights
    on the tables. An event that isn't rdq's raises InputInvalid: a function that has other callers
    too is better called `raw`.

    `machine` counts the time of synchronous calls, and `end_process` ends a process in which a
    handler goes on that ignored the end of its time; both are for tests.
    """
    registry = Registry()
    if isinstance(function, TaskDefinition):
        registry.add(function)
    else:
        registry.register(ref, function, version=version, outcome=outcome)
    handler = registry.find(ref)
    if handler is None:
        raise NotRegistered(
            f"the typed task given as {ref!r} has another name", hint="give its own name as ref"
        )
    return _Entry(rdq.parts, registry, handler, machine or SystemClock(), end_process)


class _Entry:
    """What Lambda calls."""

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
        """Run what the event brings. Raises InputInvalid for an event that isn't rdq's, and
        StoreFailed.
        """
        told = told_by(event)
        if told is None:
            raise InputInvalid(
                "event",
                "is not rdq's",
                hint="deliver: envelope, or invocation: async, in the queue's handlers",
            )
        if "claim" in told:
            return self._adopt(reference_in(told), context)
        return self._answer(delivery_in(told), context)

    # -- async -------------------------------------------------------------------------------------

    def _adopt(self, reference: Reference, context: Any) -> dict[str, Any]:
        parts = self._parts
        settings = parts.queues.settings(
            reference.queue, definition=self._handler.definition or None
        )
        if isinstance(parts.clock, StorageClock):
            parts.clock.forget()  # the process may have been frozen since it learnt the time
        now = parts.clock.now()
        grant = Grant(
            token=parts.ids.token(), now=now, lease_expires_at=now + settings.execution.lease
        )
        try:
            claim = parts.store.adopt(reference.task_id, reference.token, grant)
        except (
            LeaseLost
        ):  # delivered twice, or so late that somebody took it back: it is no longer ours to run
            return {NAME: {"adopted": False}}
        gone, stop = threading.Event(), Stop()
        resolver = Resolver(
            parts.store,
            clock=parts.clock,
            jitter=parts.jitter,
            events=parts.events,
            worker=worker_name(context),
        )
        runner = self._runner(parts.store, parts.clock, resolver)
        resolution = runner.run(claim, _within(settings, context), stop, handler_gone=gone.set)
        self._leave_nothing_behind(gone)
        return {NAME: {"adopted": True, "resolution": str(resolution)}}

    # -- sync --------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery, context: Any) -> dict[str, Any]:
        task, now, gone = delivery.task, self._machine.now(), threading.Event()
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
        ended = runner.judge(claim, settings, Stop(), handler_gone=gone.set)
        self._leave_nothing_behind(gone)
        return {NAME: _told(ended, self._machine.now())}

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

    def _leave_nothing_behind(self, gone: threading.Event) -> None:
        if not self._parts.busy.wait(gone, _FAREWELL):
            self._end_process(1)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """The store of a task that came whole, and whose lease somebody else keeps."""

    def load(self, claim: Claim) -> Task:
        return claim.task

    def heartbeat(self, claim: Claim, lease_expires_at: datetime) -> None:
        """The sweeper that is waiting for the answer keeps the lease."""


def _settings_until(queue: str, time: timedelta) -> QueueSettings:
    settings = QueueSettings.from_plain({"queue": queue})
    return replace(
        settings, execution=replace(settings.execution, handler_timeout=time, heartbeat="off")
    )


def _within(settings: QueueSettings, context: Any) -> QueueSettings:
    """The settings with no more time for the handler than the invocation has left."""
    remaining = remaining_of(context)
    if remaining is None:
        return settings
    timeout = min(settings.execution.handler_timeout, max(remaining - MARGIN, timedelta(0)))
    return replace(settings, execution=replace(settings.execution, handler_timeout=timeout))


# -- what is answered ------------------------------------------------------------------------------


def _told(ended: Ended, now: datetime) -> dict[str, Any]:
    verdict = ended.verdict
    if verdict is None:  # asked to stop before it had begun: as good as not run
        return {"error": {"type": "rdq.Unavailable", "message": "the function was ending"}}
    if verdict.error is None:
        return {"outcome": str(Outcome.SUCCESS), **_result(ended.result)}
    told: dict[str, Any] = {"error": _error(verdict.error, verdict)}
    if (
        verdict.rule != "default"
    ):  # what no rule of this function decides is left to the queue's own
        told["outcome"] = str(verdict.outcome)
    if verdict.not_before is not None:
        told["retry_after_ms"] = max(span_millis(verdict.not_before - now), 0)
    return told


def _error(error: AttemptError, verdict: Verdict) -> dict[str, Any]:
    told = {
        "type": error.type,
        "message": error.message,
        "code": error.code,
        "detail": error.detail,
        "stack": error.stack,
        "fingerprint": verdict.fingerprint,
    }
    return {name: value for name, value in told.items() if value is not None}


def _result(result: Result) -> dict[str, Any]:
    if result.content is None:
        return {}
    if result.content_type == JSON:
        return {"result": read_json(result.content)}
    return {
        "result_base64": base64.b64encode(result.content).decode(),
        "result_content_type": result.content_type,
    }
