"""What Lambda functions are handed: events of AWS's services, as recorded, and then not quite."""

import json
import random
from functools import cache
from typing import Any, Final

from rdq_core.runtime.intake import IntakeFunction
from rdq_core.runtime.kicking import KickFunction
from rdq_core.runtime.operating import OpsFunction
from rdq_core.runtime.sweeping import SweepOrder
from tests.functions.stage import Stage
from tests.fuzzing.mutation import of_data, of_item
from tests.support.events import event

_ROUTES: Final = '{"*": {"queue": "billing", "handler_ref": "charge"}}'
_DELIVERED: Final = (
    "sqs", "sqs_fifo", "lambda_dead_letter_queue", "on_failure_destination", "eventbridge", "scheduler", "schedule"
)  # fmt: skip


@cache
def _stage() -> Stage:
    return Stage({"RDQ_INTAKE_ROUTES": _ROUTES})


def _sendable(told: Any) -> Any:
    """As Lambda would hand it over: JSON, which has no NaN, and an end to its depth."""
    try:
        return json.loads(json.dumps(told, allow_nan=False))
    except (ValueError, RecursionError):
        return {}


def throw_delivery(dice: random.Random) -> Any:
    """What a source delivers to the intake."""
    return _sendable(of_data(dice, event(dice.choice(_DELIVERED))))


def take_in(told: Any) -> None:
    """It becomes tasks, or is refused."""
    if len(_stage().world.store._kept) > 300:
        _stage.cache_clear()
    IntakeFunction(_stage().host).take(told)


def throw_records(dice: random.Random) -> Any:
    """What the tasks table's stream delivers: records as DynamoDB makes them, of rows as nobody does."""
    records = event("dynamodb_stream")["Records"] * dice.choice((1, 3))
    for record in records:
        images = record["dynamodb"]
        images |= {name: of_item(dice, images[name]) for name in ("NewImage", "OldImage") if name in images}
    return records


def kick(records: Any) -> None:
    """Sweeps are started, and what is gone is cleaned up."""
    KickFunction(_stage().host).kick(records)
    KickFunction(_stage().host).clean_up(records)


def throw_call(dice: random.Random) -> Any:
    """What a function URL delivers."""
    return _sendable(of_data(dice, event("function_url")))


def operate(call: Any) -> None:
    """It is answered, whatever it is."""
    if isinstance(call, dict) and "ResponseURL" not in call:
        assert isinstance(OpsFunction(_stage().world.parts).answer(call), dict)


def order_sweep(told: Any) -> None:
    """A part of the work is asked for."""
    SweepOrder.of(told)
