"""docs/api.md has every public name, as the code declares it."""

import rdq_core
from tests.docs.api_reference import DOCUMENT, reference


def test_the_reference_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), "make reference writes it"


def test_every_public_name_has_a_section() -> None:
    page = reference()
    assert [name for name in rdq_core.__all__ if f"\n### {name}\n" not in page] == []
