"""Handlers that end in every way there is when their worker is told to stop, or that end it
themselves.

Each leaves a file under its order's name when it starts, so that a test knows when to act.
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rdq_core import Registry, TaskContext

MARKS = Path(os.environ.get("MARKS", "."))
IS_SECOND_WORKER = "SECOND_WORKER" in os.environ
PATIENCE = 60

registry = Registry(queues=["stopping"])


def started(order: str) -> bool:
    """Leave a mark. False for a second worker, whose handlers just return."""
    (MARKS / order).touch()
    return not IS_SECOND_WORKER


def is_told(give_up: float) -> bool:
    """Whether the test lets its handlers end."""
    return (MARKS / "told").exists() or time.monotonic() > give_up


@registry.handler("finishes")
def finishes(order: str) -> str:
    give_up = time.monotonic() + PATIENCE
    while started(order) and not is_told(give_up):
        time.sleep(0.01)
    return "finished"


@registry.handler("cooperates")
def cooperates(order: str, ctx: TaskContext) -> None:
    if started(order):
        ctx.wait(PATIENCE)


@registry.handler("ignores")
def ignores(order: str) -> None:
    if started(order):
        pool = ThreadPoolExecutor(1)  # Python waits for a pool's threads before it exits
        pool.submit(threading.Event().wait, PATIENCE).result()


@registry.handler("exits")
def exits(order: str) -> None:
    started(order)
    os._exit(7)


@registry.handler("spins")
def spins(order: str) -> None:
    """Nothing but a loop, that looks up once a second."""
    started(order)
    give_up = time.monotonic() + PATIENCE
    while not is_told(give_up):
        looks_up = time.monotonic() + 1
        while time.monotonic() < looks_up:
            pass


@registry.handler("sleeps")
async def sleeps(order: str) -> None:
    started(order)
    give_up = time.monotonic() + PATIENCE
    while not is_told(give_up):
        time.sleep(0.1)  # noqa: ASYNC251 - that is what is tried: the event loop stands still
