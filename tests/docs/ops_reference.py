"""The table of requests in docs/ops.md, made of their models.

python -m tests.docs.ops_reference        writes it
"""

import re
from pathlib import Path
from typing import Final

from rdq_core.ops.requests import OPERATIONS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "ops.md"
_TABLE = re.compile(r"(<!-- requests:[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def with_table(text: str) -> str:
    """The document with the table as the models have it."""
    return _TABLE.sub(lambda found: found[1] + _table() + found[2], text)


def _table() -> str:
    rows = [_row(op) for op in sorted(OPERATIONS)]
    return "\n".join(["| op | fields | |", "|---|---|---|", *rows, ""])


def _row(op: str) -> str:
    model = OPERATIONS[op]
    fields = [
        f"**{name}**" if field.is_required() else name for name, field in model.model_fields.items()
    ]
    summary = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    return f"| `{op}` | {', '.join(fields) or '-'} | {summary} |"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
