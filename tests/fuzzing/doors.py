"""Every place that reads what others have written, and what is thrown at it: one entry each."""

import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from rdq_core.client.rdq import draft_of
from rdq_core.config.document import assign, document_of, parse_document
from rdq_core.domain import ids
from rdq_core.domain.attempt import Attempt, AttemptError, Outcome, Reported
from rdq_core.domain.envelope import from_envelope, to_envelope
from rdq_core.domain.globs import matches
from rdq_core.domain.outcome import RetryAfter, Signal
from rdq_core.domain.task import Failure, Status
from rdq_core.engine.submit import Draft
from rdq_core.errors import RdqError
from rdq_core.handlers.decoding import decoder_for
from rdq_core.handlers.new_task import new_task_of
from rdq_core.handlers.results import plain_result
from rdq_core.ops.lines import draft_of_object, payload_lines, task_lines
from rdq_core.testing.clock import NOON
from rdq_core.testing.contract.factories import a_task
from tests.fuzzing import functions, operator_requests, stored
from tests.fuzzing.mutation import any_of, of_bytes, of_data, of_text

Throw = Callable[[random.Random], Any]


@dataclass(frozen=True, slots=True)
class Door:
    """`throw` makes an input of dice, `take` is the product's way in. `also` are errors that its
    contract names.
    """

    throw: Throw
    take: Callable[[Any], object]
    also: tuple[type[Exception], ...] = ()


# -- envelopes -------------------------------------------------------------------------------------

_ATTEMPT: Final = Attempt(
    attempt_no=1,
    started_at=NOON,
    finished_at=NOON,
    outcome=Outcome.RETRYABLE_FAILURE,
    error=AttemptError(
        type="TimeoutError", message="late", detail={"status": 504}, stack="Traceback ..."
    ),
    worker="host:1",
    fencing_token=1,
    unknown={"future": [1, {"a": None}]},
)
_TASKS: Final = (
    a_task(),
    a_task(
        headers={"traceparent": "00-1-2-01"},
        concurrency_key="customer-5",
        target="order:1",
        requested_by="ann",
    ),
    a_task(
        status=Status.DEAD,
        completed_at=NOON,
        failure=Failure("task_failed", "E", "m"),
        attempts=(_ATTEMPT, _ATTEMPT),
    ),
    a_task(
        status=Status.SUCCEEDED,
        completed_at=NOON,
        result=b"{}",
        result_content_type="application/json",
    ),
)
_ENVELOPES: Final = tuple(to_envelope(task) for task in _TASKS)


def _envelope(data: Any) -> None:
    """What is read can be written and read again, and is then the same."""
    if isinstance(data, dict) and _is_json(data):
        task = from_envelope(data)
        written = json.dumps(to_envelope(task))
        assert json.dumps(to_envelope(from_envelope(json.loads(written)))) == written
        _check(draft_of_object(data, _TEMPLATE))


def _is_json(data: object) -> bool:
    """Whether it could have come over the wire at all."""
    try:
        json.dumps(data)
    except RecursionError:
        return False
    return True


# -- files of tasks --------------------------------------------------------------------------------

_TEMPLATE: Final = Draft(queue="billing", handler_ref="charge", payload=b"")
_LINES: Final = tuple(
    json.dumps(data).encode()
    for data in (
        {
            "queue": "billing",
            "handler_ref": "charge",
            "payload_json": {"a": 1},
            "key": "order-1",
            "delay": "5m",
        },
        {
            "payload_text": "hello",
            "run_at": "2026-07-20T14:03:22.117Z",
            "headers": {"a": "b"},
            "target": "order:1",
        },
        _ENVELOPES[1],
    )
)


def _task_file(content: bytes) -> None:
    for line in task_lines(io.BytesIO(content), _TEMPLATE):
        _check(line.draft)


def _payload_file(content: bytes) -> None:
    for line in payload_lines(io.BytesIO(content), _TEMPLATE):
        _check(line.draft)


def _arguments(data: Any) -> None:
    task = new_task_of(data)
    _check(draft_of(task.queue, task.handler_ref, task.payload, task.options))


def _check(draft: Draft | RdqError) -> None:
    if isinstance(draft, RdqError):
        raise draft
    operator_requests.parts().submitter().check(draft)


# -- what programs hand in -------------------------------------------------------------------------

_ARGUMENTS: Final = (
    {
        "queue": "billing",
        "handler_ref": "charge",
        "payload": {"a": [1, 2.5, None]},
        "key": "order-1",
        "delay": "5m",
    },
    {
        "queue": "billing",
        "handler_ref": "charge",
        "payload": "x",
        "id": ids.encode_id(1),
        "headers": {"a": "b"},
    },
    {
        "queue": "billing",
        "handler_ref": "charge",
        "payload": b"x",
        "target": "order:1",
        "requested_by": "ann",
    },
)


class _Order(BaseModel):
    id: str
    cents: int
    lines: list[dict[str, int]] = []


_DECODERS: Final = tuple(
    decoder_for("handlers.charge", annotation)
    for annotation in (_Order, dict, list, str, bytes, Any)
)
_PAYLOADS: Final = (b'{"id": "o", "cents": 5, "lines": [{"a": 1}]}', b"text", b"[1, 2]")


def _throw_payload(dice: random.Random) -> tuple[int, bytes]:
    return dice.randrange(len(_DECODERS)), of_bytes(dice, dice.choice(_PAYLOADS))


def _payload(given: tuple[int, bytes]) -> None:
    decoder, content = given
    _DECODERS[decoder](a_task(payload=content))


def _result(given: tuple[bytes, str]) -> None:
    content, content_type = given
    done = plain_result(
        a_task(status=Status.SUCCEEDED, result=content, result_content_type=content_type)
    )
    assert done.has_output


def _throw_result(dice: random.Random) -> tuple[bytes, str]:
    kinds = (
        "application/json",
        "text/plain",
        "application/octet-stream",
        "",
        "application/json; charset=\x00",
    )
    return of_bytes(dice, b'{"receipt": "r-1", "lines": [1, 2]}'), dice.choice(kinds)


# -- configuration ---------------------------------------------------------------------------------

_FILE: Final = b"""config_version: 1
defaults: &d
  retry: {max_attempts: 5, backoff: exponential, initial_backoff: 1s, jitter: 0.2}
queues:
  payments.charge:
    owner: "team"
    retry: {max_attempts: 8, initial_backoff: 2s}
    limits: {max_payload_size: 256KiB, task_ttl: 24h, dead_ttl: never}
    dispatch: {rate_limit: 100/s, concurrency: 8}
    classification: {retryable: ["botocore.exceptions.*"], permanent: ["*.ValidationError"]}
    handlers:
      charge-payment:
        {function: "payments-charge:live", invocation: sync, deliver: raw, answer: http}
"""
_CONFIGURATION: Final = parse_document(_FILE)
_DATA: Final = {
    "config_version": 1,
    "defaults": dict(_CONFIGURATION.defaults),
    "queues": dict(_CONFIGURATION.queues),
}
_SETTINGS: Final = (
    "retry.max_attempts=8",
    "classification.permanent=[ValueError]",
    "dispatch.rate_limit=100/s",
    "owner=",
)


def _throw_glob(dice: random.Random) -> tuple[str, str]:
    globs = ("*a*a*a*a*b", "*.ValidationError", "???", "botocore.*" + "*?" * 20)
    return of_text(dice, dice.choice(globs)), of_text(
        dice, dice.choice(("a" * 2000, "botocore.exceptions.ReadTimeout"))
    )


DOORS: Final[dict[str, Door]] = {
    "an envelope": Door(any_of(_ENVELOPES, of_data), _envelope),
    "a file of tasks": Door(any_of((*_LINES, b"\n".join(_LINES)), of_bytes), _task_file),
    "a file of payloads": Door(
        any_of((b'{"a":1}\n', b"one\ntwo\r\n\nthree"), of_bytes), _payload_file
    ),
    "arguments of a submit": Door(any_of(_ARGUMENTS, of_data), _arguments),
    "a submit": Door(any_of(_ARGUMENTS, of_data), operator_requests.submit),
    "a payload": Door(_throw_payload, _payload),
    "a stored result": Door(_throw_result, _result),
    "a configuration file": Door(
        any_of((_FILE, json.dumps(_DATA).encode()), of_bytes), parse_document
    ),
    "configuration as data": Door(any_of((_DATA,), of_data), document_of),
    "a setting": Door(any_of(_SETTINGS, of_text), lambda text: assign({}, [text])),
    "a glob": Door(_throw_glob, lambda given: matches(*given)),
    "a delay asked for": Door(
        any_of(("30", "5s", "Wed, 21 Oct 2026 07:28:00 GMT"), of_text),
        RetryAfter,
        also=(ValueError,),
    ),
    "an id": Door(any_of((ids.encode_id(1 << 100),), of_text), ids.check_id),
    "a reference": Door(any_of(("order:88213",), of_text), operator_requests.forget),
    "a cursor": Door(operator_requests.throw_cursor, operator_requests.read_cursor),
    "an operator's request": Door(
        any_of(operator_requests.REQUESTS, of_data), operator_requests.ask
    ),
    "an event of the intake": Door(functions.throw_delivery, functions.take_in),
    "an event of the kick": Door(functions.throw_records, functions.kick),
    "an event of the ops function": Door(functions.throw_call, functions.operate),
    "an event of CloudFormation": Door(functions.throw_deploy, functions.deploy),
    "an event of a handler function": Door(functions.throw_task, functions.handle),
    "an answer of a function": Door(
        functions.throw_answer, functions.read, also=(Signal, Reported)
    ),
    "an order to sweep": Door(
        any_of(({"queues": ["billing"], "shards": [0, 1]}, {}), of_data), functions.order_sweep
    ),
    "a claim token": Door(stored.throw_token, stored.settle_under),
    "a stored item": Door(stored.throw_any_item, stored.read_item),
    "a table with a torn item": Door(stored.throw_item, stored.work_with),
    "a stream record": Door(stored.throw_record, stored.clean_up),
}


def names() -> Sequence[str]:
    """All doors."""
    return tuple(DOORS)
