"""The base of operator requests: their fields, their context, and their declaration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as validated

from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.ops.parts import OperatorParts

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The stores that a request works on, and its caller.

    `principal` is called only by requests that leave an audit record: naming the caller may take a
    request to STS.
    """

    parts: OperatorParts
    principal: Callable[[], Principal]

    def auditor(self) -> Auditor:
        """Records operations of the caller."""
        return self.parts.auditor(self.principal())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One operator request: its fields are what the caller may send, its answer a JSON document."""

    op: ClassVar[str]

    def answer(self, context: RequestContext) -> Document:
        """Carry out the request. Raises an RdqError with the reason if that is not possible."""
        raise NotImplementedError


OPERATIONS: Final[dict[str, type[Request]]] = {}
"""Every declared operation with its request."""

_CONFIG: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_R = TypeVar("_R", bound=type[Request])


@dataclass_transform(kw_only_default=True, frozen_default=True)
def operation(request: _R) -> _R:
    """Declare a request under its `op`.

    It becomes a frozen dataclass that checks its fields when it is made, inherited ones included.
    """
    decorate = validated(frozen=True, slots=True, kw_only=True, config=_CONFIG)
    checked = cast("_R", decorate(request))
    OPERATIONS[request.op] = checked
    return checked
