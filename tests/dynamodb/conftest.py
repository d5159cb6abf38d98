"""A store on fresh tables, a clock that stands still, and a client whose requests can be made to fail."""

import pytest

from tests.dynamodb.world import World
from tests.support.engines import Engine


@pytest.fixture
def world(moto: Engine) -> World:
    return World(moto)


@pytest.fixture
def anywhere(engine: Engine) -> World:
    return World(engine)
