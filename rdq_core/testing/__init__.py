"""The public test kit, for applications that use rdq and for authors of stores.

    rdq_core.testing.plugin    the pytest fixture `local_rdq`: a whole rdq for one test
    rdq_core.testing.embedded  the same for other test runners: in_memory, embedded
    rdq_core.testing.history   History: a task's attempts, asserted step by step
    rdq_core.testing.clock     FrozenClock, NoJitter, SkipsSleep: time that tests move, no waits
    rdq_core.testing.faults    FaultScript: lost requests, lost answers, error codes, scripted races
    rdq_core.testing.moto      atomic_moto, AtomicMotoServer: moto's DynamoDB, safe between threads
    rdq_core.testing.contract  TaskStoreContract, Bench: the promises that every store has to keep

Import each module by its own name: only moto needs `pip install rdq-core[testing]`. `Embedded`, the
type of `local_rdq`, is here too, and loaded when it is first used.
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
