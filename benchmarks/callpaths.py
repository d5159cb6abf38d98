"""How much of rdq's own code one task passes: distinct functions and files, counted with
`sys.setprofile`.

    .venv/bin/python benchmarks/callpaths.py            the table
    .venv/bin/python benchmarks/callpaths.py --list     each function, by file

A submit and a claim-run-complete go through the DynamoDB store on in-process moto. Each runs twice
and the second is counted, so that imports and first reads of the configuration are not.
Comprehensions, generator expressions and lambdas belong to the function around them.
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

ROOT = Path(rdq_core.__file__).parent
OUTSIDE = (str(ROOT / "testing"), str(ROOT / "runtime" / "system.py"))
QUEUE = "billing"


class Passed:
    """The code objects of rdq_core that ran, from any thread."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(str(ROOT))
            and not code.co_filename.startswith(OUTSIDE)
        ):
            self.codes.add(code)

    def by_file(self) -> dict[str, set[str]]:
        files: dict[str, set[str]] = defaultdict(set)
        for code in self.codes:
            name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
            files[str(Path(code.co_filename).relative_to(ROOT))].add(
                name.split(".<locals>.<")[0].split(".<")[0]
            )
        return dict(sorted(files.items()))


def passed_by(call: Callable[[], object]) -> dict[str, set[str]]:
    passed = Passed()
    threading.setprofile(passed)
    sys.setprofile(passed)
    try:
        call()
    finally:
        sys.setprofile(None)
        # typeshed leaves out that None ends it
        threading.setprofile(None)  # type: ignore[arg-type]
    return passed.by_file()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print each function")
    arguments = parser.parse_args()
    registry = Registry(queues=[QUEUE])
    registry.register("charge", lambda order: order)
    with embedded({QUEUE: {}}) as local:
        paths = {}
        for _ in range(2):
            paths["submit"] = passed_by(lambda: local.rdq.submit(QUEUE, "charge", {"amount": 5}))
            paths["claim, run, complete"] = passed_by(lambda: local.drain(registry))
    for name, files in paths.items():
        print(f"{name}: {sum(map(len, files.values()))} functions in {len(files)} files")
        if arguments.list:
            for file, functions in files.items():
                print(f"  {file}: {', '.join(sorted(functions))}")


main()
