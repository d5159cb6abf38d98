"""A sweep whose handler `charge` is the function `charge-fn`, and what became of its task."""

from typing import Any

from rdq_core.config.settings import Host
from rdq_core.domain.attempt import Outcome
from tests.engine.world import World
from tests.support.functions import Answer

ORDER = b'{"order": 17,  "note":"gr\xc3\xbc\xc3\x9fe"}'


def world_with(*answers: Answer, queue: dict[str, Any] | None = None, **target: Any) -> World:
    """A sweeper function's world: `charge` is the function `charge-fn`, which answers so."""
    handlers = {"charge": {"function": "charge-fn", **target}}
    world = World(handlers=handlers, execution={"handler_timeout": "5s"}, **(queue or {}))
    world.host = Host.SWEEPER
    world.functions.answer(*answers)
    return world


def swept(world: World, payload: object = ORDER, **options: Any) -> str:
    options.setdefault("content_type", "application/json")
    task_id = world.submit(payload, **options)
    world.sweep()
    return task_id


def outcome(world: World, task_id: str) -> tuple[Outcome, str, str]:
    attempt = world.attempts(task_id)[-1]
    assert attempt.error is not None
    return attempt.outcome, attempt.error.code, attempt.error.type


RETRYABLE, PERMANENT = Outcome.RETRYABLE_FAILURE, Outcome.PERMANENT_FAILURE
