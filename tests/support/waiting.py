"""An application's registry whose handlers hold private things: one returns some, one dies with
some at hand.
"""

from typing import Final

from rdq_core import Registry
from tests.support.canary import MESSAGE, RESULT, VARIABLE

registry: Final = Registry(queues=["billing"])


@registry.handler("pays")
def pays(order: bytes) -> str:
    del order
    return RESULT


@registry.handler("fails")
def fails(order: bytes) -> None:
    card = VARIABLE.encode() + order
    raise KeyError(MESSAGE, len(card))
