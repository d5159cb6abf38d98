"""The public test kit: what applications that use rdq, and rdq itself, are tested with.

    rdq_core.testing.clock    FrozenClock, NoJitter, SkipsSleep: time that is moved, never slept
    rdq_core.testing.faults   FaultScript: lost requests, lost answers, error codes, scripted races
    rdq_core.testing.moto     atomic_moto, AtomicMotoServer: a DynamoDB in this process that threads can't tear apart

Each module is imported by its own name, because only the last one needs `pip install rdq-core[testing]`.
"""
