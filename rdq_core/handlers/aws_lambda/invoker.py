"""Calls the functions that queues name as their handlers."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.config.targets import Answer, Deliver, HandlerTarget
from rdq_core.domain.attempt import Reported
from rdq_core.domain.lease import Claim
from rdq_core.domain.lifecycle import Result
from rdq_core.domain.task import Task
from rdq_core.engine.context import TaskContext
from rdq_core.engine.ports import ErrorSink, Handler
from rdq_core.errors import ConfigInvalid, InputInvalid
from rdq_core.handlers.aws_lambda.answers import Success, looks_like_failure, read_answer
from rdq_core.handlers.aws_lambda.handler_events import (
    client_context,
    envelope_event,
    hand_over_event,
    sqs_event,
)
from rdq_core.handlers.aws_lambda.invocation_errors import read_invocation_error
from rdq_core.handlers.aws_lambda.reports import reported_error
from rdq_core.handlers.decoding import read_json, read_text

_TIME_TO_ACCEPT: Final = timedelta(seconds=5)


class LambdaInvoker:
    """An `Invoker` of Lambda functions. Safe between threads.

    `client_of` makes a boto3 client that sends each request once and waits the given number of
    seconds for the answer. A client that retries would run the function twice in one attempt.
    """

    def __init__(self, client_of: Callable[[float], Any], *, on_error: ErrorSink) -> None:
        self._client_of = client_of
        self._on_error = on_error
        self._lock = threading.Lock()
        self._clients: dict[float, Any] = {}
        self._warned: set[tuple[str, str, str]] = set()

    def handler(self, ref: str, settings: QueueSettings) -> Handler:
        """See `Invoker.handler`."""
        target = settings.handlers[ref]

        def call(body: str, context: TaskContext) -> Success:
            payload = self._invoke(target, body, context, settings.execution.handler_timeout)
            self._warn(settings.queue, ref, target, payload)
            return read_answer(target, payload)

        return Handler(
            ref=ref,
            version=target.handler_version,
            decode=_decoder_of(target),
            call=call,
            encode=_result_of,
        )

    def hand_over(self, claim: Claim, settings: QueueSettings) -> None:
        """See `Invoker.hand_over`.

        After a lost answer the function may have got the event; if not, the lease expires.
        """
        target = settings.handlers[claim.task.handler_ref]
        try:
            self._client(_TIME_TO_ACCEPT).invoke(
                FunctionName=target.function, InvocationType="Event", Payload=hand_over_event(claim)
            )
        # botocore's errors have no common base class.
        except Exception as error:  # noqa: BLE001
            failure = read_invocation_error(error, target.function)
            if not isinstance(failure, Reported):
                raise failure from None

    def _invoke(
        self, target: HandlerTarget, body: str, context: TaskContext, timeout: timedelta
    ) -> bytes:
        """The function's answer. Raises Undelivered or Reported for a failure."""
        try:
            answer = self._client(timeout).invoke(
                FunctionName=target.function,
                InvocationType="RequestResponse",
                ClientContext=client_context(context),
                Payload=_event_for(target, body, context),
            )
            payload: bytes = answer["Payload"].read()
        except Exception as error:  # noqa: BLE001 - as above
            raise read_invocation_error(error, target.function) from None
        if answer.get("FunctionError"):
            raise Reported(reported_error(payload))
        return payload

    def _client(self, timeout: timedelta) -> Any:
        seconds = timeout / timedelta(seconds=1)
        with self._lock:
            if seconds not in self._clients:
                self._clients[seconds] = self._client_of(seconds)
            return self._clients[seconds]

    def _warn(self, queue: str, ref: str, target: HandlerTarget, payload: bytes) -> None:
        """Report, once, an answer that counts as success but looks like a failure."""
        kind = looks_like_failure(target, payload)
        with self._lock:
            if kind is None or (queue, ref, kind) in self._warned:
                return
            self._warned.add((queue, ref, kind))
        sign = "a statusCode of failure" if kind is Answer.HTTP else "batchItemFailures"
        problem = (
            f"{target.function} answers with {sign}, which counts as success; "
            f"if it means a failure, set answer: {kind}"
        )
        path = f"queues.{queue}.handlers.{ref}.answer"
        self._on_error(ConfigInvalid(path, problem), where=f"answer of {target.function}")


def _decoder_of(target: HandlerTarget) -> Callable[[Task], str]:
    """The payload as the text that the function gets; empty for an envelope, which is made from the
    context and carries any payload.
    """

    def decode(task: Task) -> str:
        if target.deliver is Deliver.ENVELOPE:
            return ""
        try:
            if target.answer is not Answer.SQS:
                read_json(task.payload)
            return read_text(task.payload)
        except ValueError as problem:
            raise InputInvalid(
                "payload", f"{problem}, which a raw delivery needs", task_id=task.id
            ) from None

    return decode


def _event_for(target: HandlerTarget, body: str, context: TaskContext) -> bytes:
    if target.deliver is Deliver.ENVELOPE:
        return envelope_event(context)
    return sqs_event(context, body) if target.answer is Answer.SQS else context.payload


def _result_of(success: Success) -> Result:
    return success.result
