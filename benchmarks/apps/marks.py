"""What every handler of the benchmark does: note when it started and when it was due, in one append
to one file.
"""

import os
import random
import time
from collections.abc import Iterator


def note(due: float) -> None:
    """Add a line. Appends this small are atomic, so many processes may share the file."""
    target = os.open(os.environ["MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(target, f"{time.time():.6f} {due:.6f}\n".encode())
    os.close(target)


def due_times(count: int, gap: float, delay: float) -> Iterator[float]:
    """When each task is due: `delay` after its submit; the submits are `gap` seconds apart, more or
    less.
    """
    dice = random.Random(count)
    for _ in range(count):
        time.sleep(dice.uniform(0.5, 1.5) * gap)
        yield time.time() + delay
