"""Operator requests as JSON documents: one model each, checked before anything is done, answered by
one implementation.

The command line and the ops function both come in here, so neither can do anything that the other
can't.
"""

from rdq_core.ops.requests.desks import Desks, Who
from rdq_core.ops.requests.dispatch import OPERATIONS, answer

__all__ = ["OPERATIONS", "Desks", "Who", "answer"]
