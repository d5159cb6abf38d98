"""The tries that botocore makes by itself: a call of ours shows the failure of the last one alone.

The invariant: a write that may have been carried out is in doubt, however the tries after it have
failed.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rdq_core.stores.dynamodb.faults import understand, understand_answer

_ID: Final = "rdq-tries"


class Tries:
    """What is known of the tries of some calls."""

    in_doubt = False
    """Whether one of them may have been carried out. That of a call which comes back as done is no
    news.
    """


class _Watched(threading.local):
    def __init__(self) -> None:
        self.tries: list[Tries] = []


_watched: Final = _Watched()


def listen_to(client: Any) -> None:
    """Hear of every try of a boto3 client from now on. Once is enough, and more change nothing."""
    client.meta.events.register("needs-retry", _on_try, unique_id=_ID)


@contextmanager
def watched() -> Iterator[Tries]:
    """What the tries of this thread's calls show, within it and not in one that is further in."""
    tries = Tries()
    _watched.tries.append(tries)
    try:
        yield tries
    finally:
        _watched.tries.pop()


def _on_try(
    response: tuple[Any, dict[str, Any]] | None = None,
    caught_exception: Exception | None = None,
    **_event: Any,
) -> None:
    if _watched.tries and _may_have_happened(response, caught_exception):
        _watched.tries[-1].in_doubt = True


def _may_have_happened(
    response: tuple[Any, dict[str, Any]] | None, error: Exception | None
) -> bool:
    if error is not None:
        return understand(error).kind.may_have_happened
    if response is None:
        return False
    # An answer of success may have been damaged on its way; then botocore tries again, and the next
    # one may be refused.
    return "Error" not in response[1] or understand_answer(response[1]).kind.may_have_happened
