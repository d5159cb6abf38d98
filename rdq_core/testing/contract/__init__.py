"""The promises of every task store, as a test suite for authors of other stores.

Provide the pytest fixture `bench`: an empty store for each test, on a clock that the test moves.
`TaskStoreContract` is the whole contract. pytest collects a class that inherits from it and whose
name begins with `Test`:

    @pytest.fixture
    def bench() -> Bench:
        clock = FrozenClock()
        store = TheirStore(clock=clock)
        return Bench(store, clock, raw=store.rows_of)

    class TestTheirStore(TaskStoreContract):
        pass

Each smaller store has a contract and a fixture, which gives an empty store. Its clock, if it has
one, stands at `NOW`:

    QueueContract, DeletionContract    queues         QueueStore
    JobContract                        jobs           JobStore
                                       cursor_keys    a factory of CursorKey, one per process
    AuditContract                      audit          AuditLog
    ReservationsContract               awake          Reservations

The engine can use any store that passes. What only separate processes can show (crashes between two
requests, claimants that share only the tables) is not covered. The package needs only pytest.
"""

from rdq_core.testing.contract.audit import AuditContract
from rdq_core.testing.contract.bench import Bench
from rdq_core.testing.contract.claiming import CandidateContract, ClaimContract, LeaseContract
from rdq_core.testing.contract.dead_letters import (
    CountContract,
    EditContract,
    PageContract,
    PurgeContract,
    RedriveContract,
)
from rdq_core.testing.contract.deletion import DeletionContract
from rdq_core.testing.contract.factories import NOW
from rdq_core.testing.contract.fencing import CancelContract, FenceContract
from rdq_core.testing.contract.forgetting import ForgetContract
from rdq_core.testing.contract.handing_over import HandOverContract
from rdq_core.testing.contract.jobs import JobContract
from rdq_core.testing.contract.keys import KeyContract
from rdq_core.testing.contract.many import ManyContract
from rdq_core.testing.contract.queues import QueueContract
from rdq_core.testing.contract.reservations import ReservationsContract
from rdq_core.testing.contract.settling import OutcomeContract, RetentionContract
from rdq_core.testing.contract.submitting import ReuseContract, SubmitContract

__all__ = [
    "NOW",
    "AuditContract",
    "Bench",
    "CancelContract",
    "CandidateContract",
    "ClaimContract",
    "CountContract",
    "DeletionContract",
    "EditContract",
    "FenceContract",
    "ForgetContract",
    "HandOverContract",
    "JobContract",
    "KeyContract",
    "LeaseContract",
    "ManyContract",
    "OutcomeContract",
    "PageContract",
    "PurgeContract",
    "QueueContract",
    "RedriveContract",
    "ReservationsContract",
    "RetentionContract",
    "ReuseContract",
    "SubmitContract",
    "TaskStoreContract",
]


class TaskStoreContract(
    SubmitContract,
    ManyContract,
    ReuseContract,
    CandidateContract,
    ClaimContract,
    LeaseContract,
    KeyContract,
    OutcomeContract,
    RetentionContract,
    FenceContract,
    CancelContract,
    HandOverContract,
    RedriveContract,
    EditContract,
    PurgeContract,
    CountContract,
    PageContract,
    ForgetContract,
):
    """The whole contract of a `TaskStore`.

    Its parts can be used one by one while a store is being written.
    """
