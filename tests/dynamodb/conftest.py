"""A store on empty tables, a clock that stands still, and a client whose requests can be made to
fail.
"""

import pytest

from tests.dynamodb.world import World
from tests.support.engines import Engine


@pytest.fixture
def world(moto_session: None) -> World:
    return World(Engine("moto"))


@pytest.fixture(params=["moto", pytest.param("ministack", marks=pytest.mark.ministack)])
def anywhere(request: pytest.FixtureRequest) -> World:
    if request.param == "ministack":
        return World(request.getfixturevalue("ministack"))
    world: World = request.getfixturevalue("world")
    return world
