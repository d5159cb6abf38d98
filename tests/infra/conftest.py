"""The template that a test looks at, and what the roles ask for in this process."""

import pytest

from tests.infra.templates import Template, sam
from tests.infra.test_policies import uses

__all__ = ["stack", "uses"]


@pytest.fixture
def stack() -> Template:
    """The SAM template's source."""
    return sam()
