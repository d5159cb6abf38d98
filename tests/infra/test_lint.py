"""The linter finds nothing, neither in the source nor in what CloudFormation makes of it."""

import json
from pathlib import Path

from tests.infra.templates import SAM, run_infra, translated


def test_the_source_is_clean() -> None:
    assert run_infra("cfn-lint", str(SAM)) == ""


def test_the_translation_is_clean(tmp_path: Path) -> None:
    template = tmp_path / "translated.json"
    template.write_text(json.dumps(translated()))
    # E3002 and the like stay on: the source alone hides wrong runtimes and misspelt actions.
    assert run_infra("cfn-lint", str(template)) == ""
