"""How much of rdq's own code one task passes: distinct functions and files, counted by a profiler.

    .venv/bin/python benchmarks/callpaths.py            the table
    .venv/bin/python benchmarks/callpaths.py --list     each function, by file

A submit, and one sweep that claims, runs and completes one task, go through the DynamoDB store on
in-process moto. Each runs twice and the second run is counted: what a process does once, or at
intervals, is not part of one task's path. That is imports, building the sweeper, and reading the
configuration (each second) and the open jobs (every 15 seconds).

Every code object counts. Up to Python 3.11 a comprehension has its own, and a generator expression
always; so figures are comparable within one version of Python, and those without are given too.
"""

import argparse
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rdq_core
from rdq_core import Registry
from rdq_core.engine.sweep import SweepLimits
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.testing.embedded import embedded

ROOT = str(Path(rdq_core.__file__).parent)
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
TEST_KIT = str(Path(ROOT, "testing"))
QUEUE = "billing"
WHAT_IS_DUE = SweepLimits(horizon=timedelta(0), linger=timedelta(0))


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
        sweeper = build_sweeper(
            local.parts, registry, serves=registry.queues, worker="host:1", rdq=local.rdq
        )
        steps = {
            "submit": lambda: local.rdq.submit(QUEUE, "charge", {"amount": 5}),
            "claim, run, complete": lambda: sweeper.sweep(WHAT_IS_DUE),
        }
        for step in steps.values():
            step()
        passed = {name: passed_by(step) for name, step in steps.items()}
    for name, files in passed.items():
        every = [function for functions in files.values() for function in functions]
        named = [function for function in every if not function.endswith(COMPREHENSIONS)]
        print(
            f"{name}: {len(every)} functions in {len(files)} files;"
            f" {len(named)} without comprehensions"
        )
        if arguments.list:
            for file, functions in files.items():
                print(f"  {file}: {', '.join(sorted(functions))}")


main()
