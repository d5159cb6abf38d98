"""The linter finds nothing, neither in the source nor in what CloudFormation makes of it."""

import json
from pathlib import Path
from typing import Final

from tests.infra.templates import SAM, run_infra, translated

_MOST_BYTES: Final = 51_200
"""What CloudFormation takes in the call itself, as `aws cloudformation deploy` sends it."""


def test_the_source_fits_into_one_call() -> None:
    assert SAM.stat().st_size <= _MOST_BYTES


def test_the_source_is_clean() -> None:
    assert run_infra("cfn-lint", str(SAM)) == ""


def test_the_translation_is_clean(tmp_path: Path) -> None:
    template = tmp_path / "translated.json"
    template.write_text(json.dumps(translated()))
    # E3002 and the like stay on: the source alone hides wrong runtimes and misspelt actions.
    assert run_infra("cfn-lint", str(template)) == ""
