"""What a seed stands for: who takes part, what goes wrong how often, and how long it lasts.

Every seed draws its own mixture, so that some runs have one kind of trouble only and others
everything at once. A plan is a record of plain numbers: a failing one is made smaller by changing
them.
"""

import random
from dataclasses import dataclass, fields, replace
from typing import Any, Final

TROUBLES: Final = (
    "unsent",
    "lost",
    "answer_lost",
    "late",
    "throttled",
    "conflict",
    "broken",
    "broken_unheard",
    "crash_before",
    "crash_in_flight",
    "crash_after",
    "freeze_before",
    "freeze_after",
    "cut_off",
)
"""What may happen to a request, or to the process that sends it."""

_KICKED: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. Rates are per request, spans are seconds of simulated time."""

    seed: str
    workers: int
    submitters: int
    operators: int
    cancellers: int
    tasks: int
    keys: int
    keyed: float = 0.7
    chaos: int
    rates: dict[str, float]
    most_troubles: int = 1 << 30
    lag: float = 0.0
    skew: float = 0.0
    steps: int = 0
    freezes: int = 0
    leaps: tuple[float, ...] = ()
    long_runs: float = 0.0
    slow_network: bool = False
    queue: dict[str, Any]
    budgets: tuple[int, ...] = (3,)
    dead_ttl: str = "never"
    odd_rows: int = 0
    rate_limited: bool = False
    forgetters: int = 0
    cleaners: int = 0
    time_outs: float = 0.0
    audited: bool = False
    clerks: int = 0
    kicks: int = 0
    refusals: float = 0.0

    def __str__(self) -> str:
        usual = {"seed": None, "queue": None}
        told = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in usual
        }
        troubles = {name: round(rate, 4) for name, rate in self.rates.items() if rate}
        return f"seed {self.seed}: " + ", ".join(
            f"{name} {value}"
            for name, value in {**told, "rates": troubles}.items()
            if value not in (0, (), {}, False)
        )

    def without(self, trouble: str) -> "Plan":
        """The same without one kind of trouble."""
        return replace(self, rates={**self.rates, trouble: 0.0})


def plan_of(seed: str) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"{seed}/plan")
    plan = _with_more(_mixture(seed, dice))
    kind = dice.random()
    if (
        kind < 0.15
    ):  # a crowd before one door: what goes wrong with a key's slot takes several who want it
        return replace(plan, workers=3, tasks=8, keys=1, keyed=1.0, leaps=())
    if kind < 0.25:
        # Long runs on two hosts that freeze: leases lapse while their holders are about to wake up.
        rates = {**plan.rates, "freeze_before": 0.05, "freeze_after": 0.05}
        queue = {**plan.queue, "execution": {"lease": "3s", "handler_timeout": "30s"}}
        queue["dispatch"] = {**plan.queue["dispatch"], "concurrency": 4}
        return replace(
            plan, workers=2, tasks=3, keys=0, long_runs=0.8, leaps=(), rates=rates, queue=queue
        )
    if kind < 0.35:  # workers lose their connection again and again, in the middle of their work
        return replace(plan, leaps=(), rates={**plan.rates, "cut_off": 0.04})
    return _maybe_kicked(plan)


def _maybe_kicked(plan: Plan) -> Plan:
    """Make some runs have kicks and sweeps instead of workers. In half of them no process is
    killed.
    """
    dice = random.Random(f"{plan.seed}/kicks")
    if dice.random() >= _KICKED:
        return plan
    is_deadly = dice.random() < 0.5
    return replace(
        plan,
        workers=0,
        kicks=dice.choice((1, 2)),
        refusals=dice.choice((0.0, 0.05, 0.2)),
        queue={**plan.queue, "handlers": {"work": {"function": "work"}}},
        rates={
            name: rate if is_deadly or "crash" not in name else 0.0
            for name, rate in plan.rates.items()
        },
        leaps=(),
        lag=min(plan.lag, 1.0),
        skew=0.0,
        steps=0,
        odd_rows=0,
    )


def _with_more(plan: Plan) -> Plan:
    """Who isn't there in most runs."""
    dice = random.Random(f"{plan.seed}/more")
    return replace(
        plan,
        forgetters=int(dice.random() < 0.25),
        cleaners=int(dice.random() < 0.3),
        time_outs=0.5 if dice.random() < 0.2 else 0.0,
        audited=dice.random() < 0.2,
        **_clerks(plan),
    )


def _clerks(plan: Plan) -> dict[str, Any]:
    """The operators who start jobs. Half of them have the DLQ for themselves, which fills up."""
    dice = random.Random(f"{plan.seed}/clerks")
    clerks = dice.choice((0, 0, 0, 0, 0, 1, 2))
    return {"clerks": clerks} | (
        {"operators": 0, "budgets": (1,)} if clerks and dice.random() < 0.5 else {}
    )


def _mixture(seed: str, dice: random.Random) -> Plan:
    level = dice.choice((0.0, 0.01, 0.03, 0.08))
    chosen = {name: level * dice.random() for name in TROUBLES if dice.random() < 0.5}
    return Plan(
        seed=seed,
        workers=dice.choice((1, 2, 2, 3)),
        submitters=dice.choice((1, 1, 2)),
        operators=dice.choice((0, 1, 1, 2)),
        cancellers=dice.choice((0, 0, 1)),
        tasks=dice.randint(2, 8),
        keys=dice.choice((0, 0, 1, 2)),
        chaos=dice.randint(10, 30),
        rates={name: chosen.get(name, 0.0) for name in TROUBLES},
        lag=dice.choice((0.0, 0.0, 0.5, 5.0)),
        skew=dice.choice((0.0, 0.0, 5.0, 600.0)),
        steps=dice.choice((0, 0, 2)),
        freezes=dice.choice((0, 0, 2, 4)),
        leaps=_leaps(dice),
        slow_network=dice.random() < 0.3,
        queue=_queue(dice),
        budgets=dice.choice(((3,), (2,), (1,), (2, 4), (4, 1))),
        dead_ttl=dice.choice(("never", "1h", "70d")),
        odd_rows=dice.choice((0, 0, 1)),
        rate_limited=dice.random() < 0.1,
    )


def _leaps(dice: random.Random) -> tuple[float, ...]:
    """Outages of everybody at once, long enough for retention and bodies to come to their ends."""
    hours = dice.choice(((), (), (), (1,), (1, 1), (2,), (24 * 25,), (24 * 25, 1)))
    return tuple(3600.0 * each for each in hours)


def _queue(dice: random.Random) -> dict[str, Any]:
    lease = dice.choice((2, 4, 8))
    timeout = dice.choice((lease // 2, lease, 2 * lease))
    return {
        "retry": {"initial_backoff": dice.choice(("200ms", "1s", "3s")), "max_backoff": "5s"},
        "execution": {"lease": f"{lease}s", "handler_timeout": f"{timeout}s"},
        "limits": {"task_ttl": dice.choice(("1h", "70d")), "max_redrives": 100},
        "dispatch": {
            "host": "any",
            "batch_size": dice.choice((1, 3, 32)),
            "poll_interval": dice.choice(("1s", "3s")),
            "concurrency": dice.choice((1, 2, 4)),
        },
        "index_shards": dice.choice((1, 1, 2)),
    }
