"""Many submits, a few at a time, each with its own answer."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from rdq_core.engine.submit import Receipt
from rdq_core.errors import RdqError, StoreFailed, Unavailable

_AT_ONCE: Final = 8
_AHEAD: Final = 4 * _AT_ONCE


def submit_each(
    items: Iterable[object], submit: Callable[[object], Receipt], on_progress: Callable[[int], object] | None
) -> list[Receipt | RdqError]:
    """An answer for each item, in their order: its receipt, or the error that it met.

    Once storage has failed, items that weren't under way are not tried any more, and say so.
    """
    answers: list[Receipt | RdqError] = []
    waiting: deque[Future[Receipt | RdqError]] = deque()
    attempt = _Attempt(submit)

    def settle(most: int) -> None:
        while len(waiting) > most:
            answers.append(waiting.popleft().result())
            if on_progress is not None:
                on_progress(len(answers))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rdq-submit") as pool:
        for item in items:
            waiting.append(pool.submit(attempt, item))
            settle(_AHEAD)
        settle(0)
    return answers


class _Attempt:
    """One submit whose error is an answer."""

    def __init__(self, submit: Callable[[object], Receipt]) -> None:
        self._submit = submit
        self._storage_failed = threading.Event()

    def __call__(self, item: object) -> Receipt | RdqError:
        if self._storage_failed.is_set():
            return StoreFailed("not tried, because storage had failed for an earlier task", may_have_happened=False)
        try:
            return self._submit(item)
        except (StoreFailed, Unavailable) as failed:
            self._storage_failed.set()
            return failed
        except RdqError as refused:
            return refused
