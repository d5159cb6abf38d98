"""A failing plan made smaller: fewer who take part, fewer troubles, less time, and still the same
promise broken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.simulation.plan import TROUBLES, Plan
from tests.simulation.verdict import Broken
from tests.simulation.world import World

_MOST_RUNS: Final = 200
_SLIPS: Final = ("AttributeError", "TypeError", "NameError", "KeyError", "IndexError", "ValueError")


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan that breaks a promise, and the world in which it did."""

    plan: Plan
    promise: str
    about: str
    world: World

    @property
    def is_a_slip(self) -> bool:
        """Whether it only says that a line of code can't be run: of a planted mistake that says
        nothing.
        """
        return self.promise.startswith("nothing raises ") and self.promise.endswith(_SLIPS)

    def __str__(self) -> str:
        named = next(
            (
                task_id
                for task_id in self.world.ids
                if task_id in self.about or task_id[-6:] in self.about
            ),
            "",
        )
        return f"{self.promise}: {self.about}\n{self.plan}\n{self.world.timeline.told(named[-6:])}"


def failure_of(plan: Plan) -> Failure | None:
    """How a plan fails; None when it keeps every promise."""
    world = World(plan)
    try:
        world.run()
    except Broken as broken:
        return Failure(plan, broken.promise, broken.about, world)
    # whatever the product lets out is a failure of its own
    except Exception as error:  # noqa: BLE001
        return Failure(plan, f"nothing raises {type(error).__name__}", str(error), world)
    return None


def shrunk(failure: Failure) -> Failure:
    """The smallest failure of the same promise that is found by leaving one thing out after the
    other.
    """
    runs = 0
    went_on = True
    while went_on and runs < _MOST_RUNS:
        went_on = False
        for plan in _smaller(failure):
            runs += 1
            found = failure_of(plan)
            if found is not None and found.promise == failure.promise:
                failure, went_on = found, True
                break
    return failure


def _smaller(failure: Failure) -> Iterator[Plan]:
    plan = failure.plan
    met = failure.world.network.troubles
    for most in (0, met // 2, met - 1):
        if 0 <= most < min(met, plan.most_troubles):
            yield replace(plan, most_troubles=most)
    yield from (plan.without(trouble) for trouble in TROUBLES if plan.rates[trouble])
    yield from _with_less(plan)


def _with_less(plan: Plan) -> Iterator[Plan]:
    least: dict[str, Any] = {
        "leaps": (),
        "lag": 0.0,
        "skew": 0.0,
        "steps": 0,
        "freezes": 0,
        "odd_rows": 0,
        "cancellers": 0,
        "forgetters": 0,
        "cleaners": 0,
        "time_outs": 0.0,
        "audited": False,
        "clerks": 0,
        "operators": 0,
        "keys": 0,
        "slow_network": False,
        "long_runs": 0.0,
        "rate_limited": False,
        "budgets": plan.budgets[:1],
    }
    yield from (
        replace(plan, **{name: value})
        for name, value in least.items()
        if getattr(plan, name) != value
    )
    for name, smallest in (
        ("tasks", 1),
        ("workers", 1),
        ("submitters", 1),
        ("operators", 1),
        ("chaos", 5),
    ):
        value = getattr(plan, name)
        if value > smallest:
            yield replace(plan, **{name: max(smallest, value // 2)})
            yield replace(plan, **{name: value - 1})
