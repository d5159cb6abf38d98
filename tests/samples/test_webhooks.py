"""The demo: its screen, its JSON document, how it stops, and with other deliveries than its own."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from rdq_core.cli.failures import INTERRUPTED
from tests.engine.world import until
from tests.support.processes import HANGS

ROOT: Final = Path(__file__).resolve().parents[2]
RDQ: Final = str(Path(sys.executable).with_name("rdq"))
DELIVERIES: Final = ROOT / "rdq_core" / "cli" / "demo" / "deliveries.jsonl"


def without_aws() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RDQ_"))
    }


def demo(*arguments: str) -> str:
    done = subprocess.run(
        [RDQ, "demo", *arguments],
        capture_output=True,
        cwd=ROOT,
        env=without_aws(),
        timeout=HANGS,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_deliveries_are_a_few_dozen_webhooks_of_all_sizes() -> None:
    sizes = [len(line) for line in DELIVERIES.read_bytes().splitlines()]
    assert 30 <= len(sizes) <= 50
    assert min(sizes) < 400
    assert 50_000 < max(sizes) < 65_000


def test_the_whole_tour_fits_one_screen() -> None:
    screen = demo()
    lines = screen.splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) <= 80
    for word in (
        "signal:Abort",
        "signal:RetryAfter",
        "glob:*Timeout*",
        "lease",
        "died (exit 139)",
        "dry-run",
        " 0 lost",
    ):
        assert word in screen
    assert "next: " in screen


@contextmanager
def started() -> Iterator["subprocess.Popen[str]"]:
    """A demo whose workers have been started, in a session of its own."""
    with subprocess.Popen(
        [RDQ, "demo"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=without_aws(),
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(2):  # the title and the counts
            process.stdout.readline()
        yield process


def is_any_process_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_no_worker_behind(number: signal.Signals) -> None:
    with started() as process:
        process.send_signal(number)
        process.communicate(timeout=HANGS)
    assert process.returncode == INTERRUPTED
    assert not is_any_process_left(process.pid)


def test_a_demo_that_is_killed_leaves_no_worker_behind() -> None:
    with started() as process:
        process.kill()
    until(lambda: not is_any_process_left(process.pid), patience=HANGS, every=0.05)


def changed(seed: int) -> tuple[bytes, dict[str, int]]:
    """The deliveries in another order, with other ids, accounts and characters; and the number for
    each account.
    """
    dice = random.Random(seed)
    events = [json.loads(line) for line in DELIVERIES.read_bytes().splitlines()]
    dice.shuffle(events)
    accounts = [
        "brightside",
        "tidewater",
        "oldport",
        "quarry",
        "lakeside",
        "meridian",
        "another",
    ]
    counts = dict.fromkeys(accounts, 0)
    for number, event in enumerate(events[:30]):
        account = (
            "meridian"
            if number == 0
            else dice.choice([each for each in accounts if each != "meridian"])
        )
        counts[account] += 1
        event |= {"id": f"evt_{seed}_{number}", "account": account, "note": "naïve — \U0001f4e6"}
    return "".join(json.dumps(event) + "\n" for event in events[:30]).encode(), counts


def test_other_deliveries_come_out_as_the_receiver_decides(tmp_path: Path) -> None:
    content, counts = changed(seed=17)
    (tmp_path / "other.jsonl").write_bytes(content)
    document: dict[str, Any] = json.loads(
        demo("--json", "--deliveries", str(tmp_path / "other.jsonl"))
    )
    summary = document["summary"]
    assert (document["ok"], document["disagreements"]) == (True, [])
    assert (summary["submitted"], len(document["tasks"])) == (30, 30)
    assert summary["succeeded"] + summary["dead"] == 30
    assert summary["dead"] == counts["oldport"]
    assert summary["lapsed"] >= 1
    assert document["redrive"]["done"]["done"] == document["redrive"]["dry_run"]["selected"]
    assert document["redrive"]["done"]["done"] >= counts["quarry"] + counts["lakeside"]
    assert sum(task["requests"] for task in document["tasks"]) == summary["requests"]
