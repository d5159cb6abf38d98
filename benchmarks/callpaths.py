"""How much of rdq's own code one task passes: distinct functions and files, counted by a profiler.

    .venv/bin/python benchmarks/callpaths.py            the table
    .venv/bin/python benchmarks/callpaths.py --list     each function, by file

A submit, and one sweep that claims, runs and completes one task, go through the DynamoDB store on
in-process moto. Each runs twice and the second run is counted, so that imports and first reads of
the configuration are not. Every code object counts: up to Python 3.11 a comprehension has its own,
so figures are comparable within one version of Python only.
"""

import argparse
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rdq_core
from rdq_core import Registry
from rdq_core.testing.embedded import embedded

ROOT = str(Path(rdq_core.__file__).parent)
TEST_KIT = str(Path(ROOT, "testing"))
QUEUE = "billing"


def passed_by(call: Callable[[], object]) -> dict[str, list[str]]:
    """The functions of rdq that ran, in any thread that was started meanwhile, by file."""
    codes: set[CodeType] = set()

    def notice(frame: FrameType, event: str, _argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ROOT) and not file.startswith(TEST_KIT):
            codes.add(frame.f_code)

    threading.setprofile(notice)
    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files: dict[str, list[str]] = defaultdict(list)
    for code in codes:
        files[str(Path(code.co_filename).relative_to(ROOT))].append(code.co_qualname)
    return dict(sorted(files.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print each function")
    arguments = parser.parse_args()
    registry = Registry(queues=[QUEUE])
    registry.register("charge", lambda order: order)
    steps: dict[str, Callable[[], object]]
    with embedded({QUEUE: {}}) as local:
        steps = {
            "submit": lambda: local.rdq.submit(QUEUE, "charge", {"amount": 5}),
            "claim, run, complete": lambda: local.drain(registry),
        }
        for step in steps.values():
            step()
        passed = {name: passed_by(step) for name, step in steps.items()}
    for name, files in passed.items():
        print(f"{name}: {sum(map(len, files.values()))} functions in {len(files)} files")
        if arguments.list:
            for file, functions in files.items():
                print(f"  {file}: {', '.join(sorted(functions))}")


main()
