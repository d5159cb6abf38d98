"""Refunds under their real retry policy: hours and days pass, and no test waits."""

import pytest
from handlers import Bank, Declined

from rdq_core.testing import Embedded

ORDER = {"id": "o-17", "cents": 1250}


@pytest.fixture
def refunded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A bank with scripted answers; `keys` are the idempotency keys it received."""
    keys: list[str] = []
    monkeypatch.setattr(
        Bank, "refund", lambda order, cents, key: keys.append(key) or f"{order}/{cents}"
    )
    return keys


def test_a_refund_is_made_under_the_tasks_own_key(local_rdq: Embedded, refunded: list[str]) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", ORDER)
    local_rdq.drain()
    assert local_rdq.history(receipt).succeeded().result == b'{"receipt":"o-17/1250"}'
    assert refunded == [receipt.id]


def test_a_bank_that_is_away_for_a_day_is_asked_again(
    local_rdq: Embedded, refunded: list[str]
) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", ORDER)
    local_rdq.fail_next("refund-order", ConnectionError("no route to the bank"), times=4)
    local_rdq.drain(horizon="7d")
    history = local_rdq.history(receipt).waited("1m", "10m", "100m", "12h")
    history.failed(ConnectionError, times=4).succeeded()
    assert len(refunded) == 1


def test_nothing_is_tried_before_its_time(local_rdq: Embedded, refunded: list[str]) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", ORDER, delay="2h")
    local_rdq.advance("119m")
    local_rdq.drain()
    local_rdq.history(receipt).pending()
    local_rdq.advance("1m")
    local_rdq.drain()
    local_rdq.history(receipt).succeeded()


def test_a_bank_that_stays_away_leaves_a_dead_letter(local_rdq: Embedded) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", ORDER)
    local_rdq.drain(horizon="30d")
    task = local_rdq.history(receipt).failed(ConnectionError, times=6).dead("task_failed")
    assert task.completed_at is not None
    assert (task.completed_at - task.created_at).days == 1


def test_a_refund_that_was_declined_is_not_tried_again(local_rdq: Embedded) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", ORDER)
    local_rdq.fail_next("refund-order", Declined())
    local_rdq.configure("refunds", {"classification": {"permanent": ["*.Declined"]}})
    local_rdq.drain(horizon="7d")
    local_rdq.history(receipt).failed("handlers.Declined", permanent=True).dead()


@pytest.mark.parametrize("cents", [0, -5])
def test_nothing_is_nothing(local_rdq: Embedded, refunded: list[str], cents: int) -> None:
    receipt = local_rdq.rdq.submit("refunds", "refund-order", {"id": "o-17", "cents": cents})
    local_rdq.drain()
    local_rdq.history(receipt).failed(code="nothing_to_refund", permanent=True).dead(
        "nothing_to_refund"
    )
    assert refunded == []
