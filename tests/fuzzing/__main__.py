"""Throw many inputs at every door: `make fuzz`, or `make fuzz INPUTS=1000 ARGS="--door 'a
cursor'"`.
"""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.fuzzing.doors import DOORS
from tests.fuzzing.thrower import part

_AT_A_TIME = 5000


def main() -> int:
    """The command; 1 when an input did what none may do."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--door", action="append", choices=list(DOORS))
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    asked = parser.parse_args()
    began, wrong = time.perf_counter(), False
    ends = range(asked.first, asked.first + asked.inputs)
    parts = [
        (name, ends[at : at + _AT_A_TIME])
        for name in asked.door or DOORS
        for at in range(0, len(ends), _AT_A_TIME)
    ]
    thrown: dict[str, list[int]] = {}
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name, number, refused, problem in pool.map(part, parts):
            thrown[name] = [
                thrown.get(name, [0, 0])[0] + number,
                thrown.get(name, [0, 0])[1] + refused,
            ]
            if problem is not None:
                wrong = True
                print(problem, flush=True)
    for name, (number, refused) in thrown.items():
        print(f"{name:26} {number:7} inputs, {refused:7} refused")
    print(f"{len(thrown)} doors in {time.perf_counter() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
