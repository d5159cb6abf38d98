"""Gives the fixture `local_rdq` this project's handlers and queues."""

from pathlib import Path

import handlers
import pytest

from rdq_core import Registry


@pytest.fixture
def rdq_registry() -> Registry:
    return handlers.registry


@pytest.fixture
def rdq_queues() -> Path:
    return Path(__file__).with_name("queues.yaml")
