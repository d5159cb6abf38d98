"""The template that a test looks at: as it is shipped, unless a mutation calls the test with another."""

import pytest

from tests.infra.templates import Template, sam


@pytest.fixture
def stack() -> Template:
    """The SAM template's source."""
    return sam()
