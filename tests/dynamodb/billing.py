"""What a client's writes are billed, as the engine says. ministack bills them by DynamoDB's
published rules.
"""

from typing import Any, Final

_WRITES: Final = frozenset(
    {
        "PutItem",
        "UpdateItem",
        "DeleteItem",
        "BatchWriteItem",
        "TransactWriteItems",
        "BatchExecuteStatement",
    }
)
_ASKED: Final = "provide-client-params.dynamodb"
_ANSWERED: Final = "after-call.dynamodb"


class Bill:
    """Write units of everything that a client sends from now on, until it is closed, and the
    requests' names.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.units = 0.0
        self.requests: list[str] = []
        client.meta.events.register(_ASKED, self._ask)
        client.meta.events.register(_ANSWERED, self._note)

    def close(self) -> None:
        self._client.meta.events.unregister(_ASKED, self._ask)
        self._client.meta.events.unregister(_ANSWERED, self._note)

    @property
    def writes(self) -> list[str]:
        """The names of the requests that write."""
        return [name for name in self.requests if name in _WRITES]

    def clear(self) -> None:
        self.units = 0.0
        self.requests.clear()

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        return {**params, "ReturnConsumedCapacity": "INDEXES"} if model.name in _WRITES else params

    def _note(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append(model.name)
        if model.name not in _WRITES:
            return
        consumed = parsed.get("ConsumedCapacity", [])
        for each in consumed if isinstance(consumed, list) else [consumed]:
            self.units += each["CapacityUnits"]
