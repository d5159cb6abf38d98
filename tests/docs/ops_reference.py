"""The table of requests in docs/ops.md, generated from the requests.

python -m tests.docs.ops_reference        writes it
"""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Final

from rdq_core.ops.requests import OPERATIONS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "ops.md"
_TABLE = re.compile(r"(<!-- requests:[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def with_table(text: str) -> str:
    """The document with a current table."""
    return _TABLE.sub(lambda found: found[1] + _table() + found[2], text)


def _table() -> str:
    rows = [_row(op) for op in sorted(OPERATIONS)]
    return "\n".join(["| op | fields | |", "|---|---|---|", *rows, ""])


def _row(op: str) -> str:
    """One request: its required fields first, in bold, then the others."""
    request = OPERATIONS[op]
    required = [f"**{each.name}**" for each in fields(request) if each.default is MISSING]
    optional = [each.name for each in fields(request) if each.default is not MISSING]
    summary = " ".join((request.__doc__ or "").split("\n\n")[0].split())
    return f"| `{op}` | {', '.join(required + optional) or '-'} | {summary} |"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
