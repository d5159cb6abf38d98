import ctypes
import gc
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

import pytest

from rdq_core.domain.lease import Claim, Grant
from rdq_core.domain.limits import MIB
from rdq_core.domain.task import Status, Task
from rdq_core.engine.ports import Candidate, Page
from rdq_core.engine.sweep import SweepLimits
from rdq_core.stores.memory import MemoryStore
from tests.engine.world import QUEUE, World

_LARGEST_SMALL_OBJECT: Final = 512
"""What Python's own allocator hands out at most in one block."""


class _Mallinfo(ctypes.Structure):
    """glibc's account of its heap; `in_use` sums over all threads' arenas, `mapped` are blocks too
    large for them.
    """

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "o", "s", "mapped_blocks", "mapped", "u", "fs", "in_use", "f", "keep")
    ]


def large_bytes_in_use() -> int:
    """What Python has asked the C library for: whatever is too large for its own allocator. 0 where
    it isn't glibc.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.in_use) + int(info.mapped)


class EndlessStore(MemoryStore):
    """A store that always has due work and keeps nothing of what becomes of it."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._numbers = count()

    def candidates(
        self, queue: str, shard: int, *, until: datetime, limit: int, after: Any = None
    ) -> Page[Candidate]:
        items = [
            Candidate(
                task_id=f"{next(self._numbers):026d}",
                queue=queue,
                due_at=until - timedelta(hours=1),
                status=Status.PENDING,
                fencing_token=1,
                handler_ref="charge",
            )
            for _ in range(limit)
        ]
        return Page(items, next="more")

    def claim(self, candidate: Candidate, grant: Grant) -> Claim:
        task = Task(
            id=candidate.task_id,
            queue=QUEUE,
            handler_ref="charge",
            payload=b"order",
            created_at=grant.now,
        )
        return Claim(
            task=task,
            token=grant.token,
            fencing_token=2,
            claimed_at=grant.now,
            lease_expires_at=grant.lease_expires_at,
        )

    def dead_letter(self, *_arguments: Any, **_options: Any) -> None:
        pass


@pytest.mark.slow
def test_failures_leave_nothing_behind_in_a_worker_s_memory() -> None:
    world = World(retry={"max_attempts": 1}, dispatch={"concurrency": 8, "batch_size": 100})
    world.store = EndlessStore(clock=world.clock, ids=world.ids)
    world.parts = replace(world.parts, store=world.store)

    def handler(order: str) -> None:
        large = order * 10_000  # held by the frame that a kept traceback would hold
        raise ValueError(large[:10])

    world.handler(handler)
    sweeper = world.sweeper

    def bytes_in_use_after(tasks: int) -> int:
        assert sweeper.sweep(SweepLimits(max_tasks=tasks)).total.dead_lettered == tasks
        world.told.events.clear()
        gc.collect()
        return sys.getallocatedblocks() * _LARGEST_SMALL_OBJECT + large_bytes_in_use()

    bytes_in_use_after(1_000)
    after_5_000 = bytes_in_use_after(4_000)
    after_20_000 = bytes_in_use_after(15_000)
    assert after_20_000 - after_5_000 < MIB
