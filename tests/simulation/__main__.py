"""Run seeds of the simulation (`make simulate SEEDS=1000`), and print the first failure.

`--from N` begins at another seed, `--seed S` runs one seed and prints its timeline, `--sight` runs
with each planted mistake in turn and prints the first seed that sees it; `--sight job` takes the
mistakes with "job" in their names.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from tests.simulation.plan import plan_of
from tests.simulation.planted import MISTAKES
from tests.simulation.shrinking import failure_of, shrunk
from tests.simulation.world import World


def outcome_of(seed: int) -> tuple[int, bool, Counter[str]]:
    """The seed, whether it keeps every promise, and what it was put through."""
    world = World(plan_of(str(seed)))
    try:
        world.run()
    except Exception:  # noqa: BLE001 - it is run again to be told about
        return seed, False, world.counts
    return seed, True, world.counts


def seen_after(name: str, most: int) -> tuple[str, int | None, str]:
    """After how many seeds a planted mistake is seen, and what gave it away."""
    with MISTAKES[name]():
        for seed in range(1, most + 1):
            failure = failure_of(plan_of(str(seed)))
            if failure is not None and not failure.is_a_slip:
                return name, seed, failure.promise
    return name, None, "nothing"


def simulate(seeds: Iterable[int], jobs: int) -> int:
    """Run the seeds; 1 when one fails, which is then shrunk and told."""
    began, total, runs = time.perf_counter(), Counter[str](), 0
    with multiprocessing.Pool(jobs) as pool:
        for seed, is_well, counts in pool.imap(outcome_of, seeds, chunksize=8):
            runs += 1
            total += counts
            if not is_well:
                print(f"seed {seed} fails", flush=True)
                return report(seed)
    took = time.perf_counter() - began
    print(f"{runs} seeds passed, 0 failed, in {took:.0f} s ({runs / took:.0f} a second)")
    print(", ".join(f"{count} {name}" for name, count in sorted(total.items())))
    return 0


def report(seed: int) -> int:
    """Shrink a failing seed and print its timeline."""
    failure = failure_of(plan_of(str(seed)))
    if failure is None:
        print(f"seed {seed} fails no more when it is run by itself: its run is not reproducible")
        return 1
    print(shrunk(failure))
    return 1


def look(names: Sequence[str], most: int, jobs: int) -> int:
    """Plant each mistake; 1 when one isn't seen."""
    blind = 0
    with multiprocessing.Pool(jobs) as pool:
        for name, seeds, promise in pool.imap_unordered(partial(seen_after, most=most), names):
            blind += seeds is None
            print(
                f"{'NOT SEEN' if seeds is None else f'seed {seeds:3}'}  {name:50} {promise}",
                flush=True,
            )
    print(f"{len(names) - blind} passed, {blind} failed")
    return 1 if blind else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sight", nargs="?", const="")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    asked = parser.parse_args()
    if asked.seed is not None:
        return one(asked.seed)
    if asked.sight is not None:
        return look([name for name in MISTAKES if asked.sight in name], asked.seeds, asked.jobs)
    return simulate(range(asked.first, asked.first + asked.seeds), asked.jobs)


def one(seed: int) -> int:
    """Run one seed and print its story."""
    failure = failure_of(plan_of(str(seed)))
    if failure is not None:
        print(failure)
        return 1
    world = World(plan_of(str(seed)))
    world.run()
    print(world.plan)
    print(world.timeline.told())
    return 0


if __name__ == "__main__":
    sys.exit(main())
