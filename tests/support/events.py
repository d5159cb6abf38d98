"""AWS's events as its documentation shows them, for every source that rdq's functions have."""

import json
from pathlib import Path
from typing import Any, Final

EVENTS: Final = Path(__file__).resolve().parents[1] / "functions" / "events"


def event(name: str) -> Any:
    """The event of this name, anew each time."""
    return json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))
