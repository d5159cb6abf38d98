"""The handlers of a version in which the bug is mended."""

from rdq_core import Registry

registry = Registry(queues=["deliveries"])


@registry.handler("deliver")
def deliver(payload: bytes) -> None:
    assert payload
