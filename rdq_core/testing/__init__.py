"""The public test kit: what applications that use rdq, and rdq itself, are tested with.

    rdq_core.testing.plugin    the pytest fixture `local_rdq`: a whole rdq for one test
    rdq_core.testing.embedded  the same for other test runners: in_memory, embedded
    rdq_core.testing.history   History: what became of a task, compared step by step
    rdq_core.testing.clock    FrozenClock, NoJitter, SkipsSleep: time that is moved, never slept
    rdq_core.testing.faults   FaultScript: lost requests, lost answers, error codes, scripted races
    rdq_core.testing.moto     atomic_moto, AtomicMotoServer: a DynamoDB in this process that threads can't tear apart
    rdq_core.testing.contract  TaskStoreContract, Bench: what every store promises, for who writes another one

Each module is imported by its own name, because only moto needs `pip install rdq-core[testing]`.
`Embedded`, the type of `local_rdq`, is here too, and loaded when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdq_core.testing.embedded import Embedded as Embedded

__all__ = ["Embedded"]


def __getattr__(name: str) -> Any:
    if name == "Embedded":
        from rdq_core.testing.embedded import Embedded

        return Embedded
    raise AttributeError(name)
