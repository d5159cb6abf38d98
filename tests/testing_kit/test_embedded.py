from rdq_core import Abort, Registry, Status
from rdq_core.testing.embedded import embedded
from rdq_core.testing.moto import atomic_moto

QUEUES = {
    "billing": {
        "retry": {"max_attempts": 3, "initial_backoff": "1h", "max_backoff": "1d", "jitter": 0.0}
    }
}


def a_registry(*failures: Exception) -> Registry:
    registry, left = Registry(queues=["billing"]), list(failures)

    @registry.handler("charge")
    def charge(order: dict[str, int]) -> int:
        if left:
            raise left.pop(0)
        return order["amount"]

    return registry


def test_a_whole_life_is_played_out_in_no_time() -> None:
    with embedded(QUEUES) as local:
        start = local.clock.now()
        receipt = local.rdq.submit("billing", "charge", {"amount": 5})
        assert local.drain(a_registry(OSError(), OSError()), horizon="7d").total.completed == 1
        assert local.rdq.get(receipt.id).status is Status.SUCCEEDED
        assert (local.clock.now() - start).total_seconds() >= 3 * 3600


def test_by_default_only_what_is_due_now_is_run() -> None:
    with embedded(QUEUES) as local:
        local.rdq.submit("billing", "charge", {"amount": 5}, delay="1h")
        registry = a_registry()
        assert local.drain(registry).total.claimed == 0
        local.advance("1h")
        assert local.drain(registry).total.completed == 1


def test_each_one_is_empty_also_within_another_mock() -> None:
    with atomic_moto():
        for _ in range(2):
            with embedded(QUEUES) as local:
                local.rdq.submit("billing", "charge", {"amount": 5})
                local.drain(a_registry(Abort("no")))
                assert local.parts.store.counts("billing").dead == 1


def test_configuration_can_change_while_work_is_waiting() -> None:
    with embedded(QUEUES) as local:
        receipt = local.rdq.submit("billing", "charge", {"amount": 5})
        local.configure("billing", {"retry": {"max_attempts": 1}})
        local.drain(a_registry(OSError()))
        assert local.rdq.get(receipt.id).status is Status.DEAD
