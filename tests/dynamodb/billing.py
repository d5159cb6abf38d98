"""What a client's requests are billed, as the engine says."""

from typing import Any

READS = ("GetItem", "Query")


class Bill:
    """Write units of everything that a client sends from now on."""

    def __init__(self, client: Any) -> None:
        self.units = 0.0
        self.requests: list[str] = []
        client.meta.events.register("provide-client-params.dynamodb", self._ask)
        client.meta.events.register("after-call.dynamodb", self._note)

    def clear(self) -> None:
        self.units = 0.0
        self.requests.clear()

    def _ask(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**params, "ReturnConsumedCapacity": "INDEXES"}

    def _note(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        self.requests.append(model.name)
        if model.name in READS:
            return
        consumed = parsed.get("ConsumedCapacity", [])
        for each in consumed if isinstance(consumed, list) else [consumed]:
            self.units += each["CapacityUnits"]
