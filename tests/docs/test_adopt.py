"""The snippets that people adopt rdq by are short enough to be taken in at a glance; `test_readme`
runs them.
"""

import re
from pathlib import Path

ADOPT = Path(__file__).parents[2] / "docs" / "adopt.md"


def test_a_snippet_has_at_most_fifteen_lines() -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", ADOPT.read_text(), re.MULTILINE | re.DOTALL)
    sizes = [len([line for line in snippet.splitlines() if line.strip()]) for snippet in snippets]
    assert sizes
    assert max(sizes) <= 15
