"""What a task costs in DynamoDB, step by step and over its life, beside the obvious design.

    python -m benchmarks.cost

Units are counted by DynamoDB's published rules over the requests really sent
(`benchmarks.capacity`), against moto in this process. It ends with 1 when a step costs more
than its budget, or more as history and backlog grow.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import boto3

from benchmarks.backlog import CLAIMED, sweep_of
from benchmarks.designs import real_stack
from benchmarks.steps import (
    BUDGETS,
    DOLLARS_PER_READ_UNIT,
    DOLLARS_PER_WRITE_UNIT,
    Bench,
    Bill,
    obvious_life,
    payload_of,
)
from rdq_core.testing.moto import atomic_moto

PAYLOADS: Final = {"300 B": 300, "1 KB": 1024, "10 KB": 10 * 1024, "100 KB": 100 * 1024}
HISTORIES: Final = (1, 10, 100)
BACKLOGS: Final = (1_000, 20_000)
BODY: Final = "10 KB"


def client() -> Any:
    """A client of the active moto."""
    return boto3.client(
        "dynamodb", region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-"
    )


def over_budget(steps: Mapping[str, Bill]) -> list[str]:
    """Steps that cost more than they may."""
    return [
        f"{name} costs {bill.writes:g} write units; {BUDGETS[name]} are its budget"
        for name, bill in steps.items()
        if (bill.writes or 0) > BUDGETS[name]
    ]


def grown(short: Mapping[str, Bill], long: Mapping[str, Bill]) -> list[str]:
    """Steps that cost more after a long history than after a short one."""
    return [
        f"{name} costs more after a long history"
        for name in short
        if long[name].writes != short[name].writes
    ]


def main() -> int:
    """Print everything. Returns 1 if something costs too much."""
    stack, long_stack = real_stack(1), real_stack(2)
    with atomic_moto():
        bench = Bench(client())
        problems = list(show_steps(bench, stack))
        show_lives(bench, stack)
        show_rest(bench, stack, long_stack)
    problems += show_backlog()
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def show_steps(bench: Bench, stack: str) -> Iterator[str]:
    """Each step with its budget, for a small payload and a large one, after no failures and after
    100.
    """
    first = bench.steps(payload_of(300), stack)
    first["submit with a failure"] = bench.submit_with_a_failure(payload_of(300), stack)
    later = {**first, **bench.steps(payload_of(300), stack, earlier_attempts=100)}
    large = {**first, **bench.steps(payload_of(PAYLOADS["100 KB"]), stack, earlier_attempts=1)}
    print(f"\nwrite units of each step (a stack of {len(stack):,} B)\n")
    rows = [
        (name, BUDGETS[name], *(f"{bills[name].writes:g}" for bills in (first, later, large)))
        for name in BUDGETS
    ]
    show(("step", "budget", "300 B", "after 100 failures", "100 KB"), rows)
    yield from over_budget(first)
    yield from grown(first, later)
    yield from over_budget(
        {name: bill for name, bill in large.items() if name not in CARRY_THE_BODY}
    )


CARRY_THE_BODY: Final = frozenset({"submit", "purge", "submit with a failure"})
"""Steps that write or delete a body of its own: they cost its size once."""


def show_lives(bench: Bench, stack: str) -> None:
    """Whole lives beside the obvious design's."""
    print(
        "\nwrite units over a task's life, and dollars per million tasks, "
        "reads of payloads included\n"
    )
    rows = []
    for name, size in PAYLOADS.items():
        for attempts in HISTORIES:
            ours = bench.life(payload_of(size), attempts, stack)
            theirs = obvious_life(payload_of(size), attempts, stack)
            rows.append((name, attempts, *compared(ours, theirs)))
    show(("payload", "attempts", "rdq", "obvious", "ratio", "rdq $", "obvious $"), rows)


def compared(ours: Bill, theirs: Bill) -> tuple[str, ...]:
    """The costs of both designs, and their ratio."""
    mine = f"{ours.writes:,.0f}"
    if theirs.writes is None:
        return mine, "over 400 KB", "-", f"{ours.dollars:,.2f}", "-"
    ratio = theirs.writes / (ours.writes or 1)
    return (
        mine,
        f"{theirs.writes:,.0f}",
        f"{ratio:.1f}",
        f"{ours.dollars:,.2f}",
        f"{theirs.dollars:,.2f}",
    )


def show_rest(bench: Bench, stack: str, long_stack: str) -> None:
    """Costs outside a typical life of a task."""
    print("\nlines of their own\n")
    size = PAYLOADS[BODY]
    renewal = f"renewal of a body of {BODY}, once a month while overdue by more than 20 days"
    lines = {
        renewal: bench.renewal(payload_of(size)),
        f"one failure with a stack of {len(stack):,} B": bench.failure(stack),
        f"one failure with a stack of {len(long_stack):,} B": bench.failure(long_stack),
        "one failure with a stack of 64 KB that doesn't compress": bench.failure(
            payload_of(32 * 1024).hex()
        ),
        "clean-up after a task of 10 attempts": bench.clean_up(stack, 10),
        "a poll of one shard where nothing is due": bench.poll(),
    }
    rows = [
        (name, f"{bill.writes:g}", f"{bill.reads:g}", f"{bill.dollars:,.2f}")
        for name, bill in lines.items()
    ]
    show(("", "write units", "read units", "$ a million"), rows)
    writes, reads = 1e6 * DOLLARS_PER_WRITE_UNIT, 1e6 * DOLLARS_PER_READ_UNIT
    print(
        f"\n${writes:g} per million write units and ${reads:g} per million read units: "
        "us-east-1, on demand"
    )


def show_backlog() -> list[str]:
    """The requests of a sweep, with little and with much due behind."""
    print(f"\nrequests of a sweep that completes {CLAIMED} tasks\n")
    seen = {}
    for due in BACKLOGS:
        with atomic_moto():
            behind = sweep_of(client(), due)
        seen[due] = (
            *(behind.requests[name] for name in ("query", "get_item", "update_item")),
            behind.entries_read,
        )
    show(
        ("due", "Query", "GetItem", "UpdateItem", "index entries read"),
        [(f"{due:,}", *seen[due]) for due in seen],
    )
    return [] if len(set(seen.values())) == 1 else ["a sweep takes more requests when more is due"]


def show(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: names on the left, numbers to the right."""
    table = [headings, *rows]
    widths = [max(len(str(cell)) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        cells = (f"{cell!s:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        print("  ".join((f"{row[0]:<{widths[0]}}", *cells)))


if __name__ == "__main__":
    sys.exit(main())
