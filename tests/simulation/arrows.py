"""What each verb may make of a state row, one line a verb: the machine as the design draws it."""

from dataclasses import dataclass
from typing import Final

LIVE: Final = frozenset({"PENDING", "IN_FLIGHT"})
HELD: Final = frozenset({"IN_FLIGHT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From where to where, and what else changes. `history` and `count` are added to; None is one
    of 0 and 1.

    `by_token` needs the row's own token; `when_due` a due time that has come; `fence` is what it
    rises by.
    """

    source: frozenset[str]
    target: str
    history: int | None = 0
    count: int | None = 0
    fence: int = 0
    by_token: bool = False
    when_due: bool = False


ARROWS: Final = {
    "claim": Arrow(source=frozenset({"PENDING"}), target="IN_FLIGHT", fence=1, when_due=True),
    "claim_keyed": Arrow(source=frozenset({"PENDING"}), target="IN_FLIGHT", fence=1, when_due=True),
    "reclaim": Arrow(
        source=HELD, target="IN_FLIGHT", history=1, count=1, fence=1, by_token=True, when_due=True
    ),
    "dead_letter_lapsed": Arrow(
        source=HELD, target="DEAD", history=1, count=1, by_token=True, when_due=True
    ),
    "heartbeat": Arrow(source=HELD, target="IN_FLIGHT", by_token=True),
    "complete": Arrow(source=HELD, target="SUCCEEDED", count=1, by_token=True),
    "reschedule": Arrow(source=HELD, target="PENDING", history=1, count=1, by_token=True),
    "dead_letter": Arrow(source=HELD, target="DEAD", history=None, count=None, by_token=True),
    "release": Arrow(source=HELD, target="PENDING", by_token=True),
    "cancel": Arrow(source=LIVE, target="CANCELLED"),
    "redrive": Arrow(source=frozenset({"DEAD"}), target="PENDING", count=None),
}
