"""Every store keeps the whole contract, of which nothing is left out."""

import sys
from collections.abc import Iterable
from inspect import getmembers, isclass

from rdq_core.testing import contract
from rdq_core.testing.contract import (
    AuditContract,
    DeletionContract,
    JobContract,
    QueueContract,
    ReservationsContract,
    TaskStoreContract,
)


class TestStore(TaskStoreContract):
    pass


class TestQueues(QueueContract):
    pass


class TestDeletion(DeletionContract):
    pass


class TestJobs(JobContract):
    pass


class TestAudit(AuditContract):
    pass


PLUGGED = (TestStore, TestQueues, TestDeletion, TestJobs, TestAudit, ReservationsContract)


def test_no_promise_is_hidden_by_another_of_its_name_or_left_out() -> None:
    modules = [
        module for name, module in sys.modules.items() if name.startswith(f"{contract.__name__}.")
    ]
    kinds = {
        kind
        for module in modules
        for name, kind in getmembers(module, isclass)
        if name.endswith("Contract")
    }
    assert sorted(promises(vars(kind) for kind in kinds)) == sorted(
        promises(dir(kind) for kind in PLUGGED)
    )


def promises(names: Iterable[Iterable[str]]) -> list[str]:
    return [name for of_kind in names for name in of_kind if name.startswith("test_")]
