"""Every store keeps the whole contract, of which nothing is left out."""

import sys
from inspect import getmembers, isclass

from rdq_core.testing import contract
from rdq_core.testing.contract import TaskStoreContract


class TestStore(TaskStoreContract):
    pass


def test_no_promise_is_hidden_by_another_of_its_name_or_left_out() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{contract.__name__}.")]
    families = {
        kind for module in modules for _, kind in getmembers(module, isclass) if kind.__name__.endswith("Contract")
    }
    promises = [name for family in families for name in vars(family) if name.startswith("test_")]
    assert sorted(promises) == sorted(name for name in dir(TaskStoreContract) if name.startswith("test_"))
