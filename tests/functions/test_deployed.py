"""The functions as real processes: from a submit through the sweeper to a function of the
application, and its end.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rdq_core.domain.task import Status
from tests.engine.world import until
from tests.support.deployed import ROOT, Deployment
from tests.support.engines import Engine
from tests.support.events import event

pytestmark = [pytest.mark.ministack, pytest.mark.slow]

QUEUE = "billing"
PATIENCE = 90.0

UNAWARE = """
import json, os

def handler(event, context):
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(json.dumps(event) + "\\n")
    return {"receipt": event["order"]}
"""

AWARE = """
import json, os
from rdq_core import Rdq, lambda_handler

def charge(order: dict, ctx) -> dict:
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(json.dumps([order, ctx.attempt_no]) + "\\n")
    return {"receipt": order["order"]}

handler = lambda_handler(Rdq.from_env(), "charge", charge)
"""


class Shop(Deployment):
    """A deployment with the queue `billing`, whose handler `charge` is a function of the
    application.
    """

    effects: Path

    def open(
        self, effects: Path, code: str, *, retry: Mapping[str, Any] | None = None, **target: Any
    ) -> None:
        self.effects = effects
        self.deploy("charge-fn", "charge.handler", code={"charge.py": code}, EFFECTS=str(effects))
        handlers = {"charge": {"function": "charge-fn", **target}}
        # No time of the queue's passes while a slow machine starts a process.
        times = {"handler_timeout": "2m", "lease": "10m"}
        self.configure(QUEUE, handlers=handlers, execution=times, index_shards=1, retry=retry or {})
        self.sweeper = self.deploy("rdq-sweeper", "functions.sweeper.handler")

    sweeper: str

    def submit(self, number: int = 17) -> str:
        return self.rdq.submit(QUEUE, "charge", {"order": number}).id

    def ends(self, task_id: str) -> bool:
        return self.rdq.get(task_id).status is Status.SUCCEEDED

    @property
    def seen(self) -> list[Any]:
        return (
            [json.loads(line) for line in self.effects.read_text().splitlines()]
            if self.effects.exists()
            else []
        )


@pytest.fixture
def shop(ministack: Engine) -> Shop:
    return Shop(ministack)


def test_a_task_goes_through_the_sweeper_to_a_function_that_knows_nothing_of_rdq(
    shop: Shop, tmp_path: Path
) -> None:
    shop.open(tmp_path / "effects", UNAWARE)
    task_id = shop.submit()
    report = shop.invoke("rdq-sweeper", event("schedule"))
    assert (report["total"]["completed"], shop.seen) == (1, [{"order": 17}])
    assert shop.rdq.result(task_id).output == {"receipt": 17}
    (attempt,) = shop.rdq.get(task_id).attempts
    assert str(attempt.worker).startswith("lambda:rdq-sweeper/")


def test_a_task_that_is_handed_over_is_adopted_and_settled_by_its_function(
    shop: Shop, tmp_path: Path
) -> None:
    shop.open(tmp_path / "effects", AWARE, invocation="async")
    task_id = shop.submit()
    assert shop.invoke("rdq-sweeper", {"queues": [QUEUE]})["total"]["handed_over"] == 1
    until(lambda: shop.ends(task_id), patience=PATIENCE)
    assert shop.rdq.result(task_id).output == {"receipt": 17}
    assert shop.seen == [[{"order": 17}, 1]]
    (attempt,) = shop.rdq.get(task_id).attempts
    assert str(attempt.worker).startswith("lambda:charge-fn/")


def test_an_envelope_reaches_a_function_and_its_answer_comes_back(
    shop: Shop, tmp_path: Path
) -> None:
    shop.open(tmp_path / "effects", AWARE, deliver="envelope")
    task_id = shop.submit()
    shop.invoke("rdq-sweeper", {})
    assert shop.rdq.result(task_id).output == {"receipt": 17}


def test_new_work_starts_a_sweep_by_way_of_the_stream(shop: Shop, tmp_path: Path) -> None:
    shop.open(tmp_path / "effects", UNAWARE)
    shop.deploy("rdq-kick", "functions.kick.handler", RDQ_SWEEPER_FUNCTION=shop.sweeper)
    shop.follow_the_stream("rdq-kick")
    tasks = [shop.submit(number) for number in range(3)]
    until(lambda: all(shop.ends(task_id) for task_id in tasks), patience=PATIENCE)
    assert sorted(each["order"] for each in shop.seen) == [0, 1, 2]


def test_the_same_event_three_times_at_once_has_one_effect_a_task(
    shop: Shop, tmp_path: Path
) -> None:
    shop.open(tmp_path / "effects", UNAWARE)
    tasks = [shop.submit(number) for number in range(10)]
    for _ in range(3):
        shop.functions.invoke(
            FunctionName="rdq-sweeper", InvocationType="Event", Payload=json.dumps({}).encode()
        )
    until(lambda: all(shop.ends(task_id) for task_id in tasks), patience=PATIENCE)
    assert sorted(each["order"] for each in shop.seen) == list(range(10))


def test_what_a_removed_row_leaves_behind_goes_by_way_of_the_stream(
    shop: Shop, tmp_path: Path
) -> None:
    once_an_hour = {"backoff": "fixed", "initial_backoff": "1h", "max_backoff": "1h"}
    shop.open(
        tmp_path / "effects",
        "def handler(event, context):\n    raise ValueError\n",
        retry=once_an_hour,
    )
    shop.deploy("rdq-clean-up", "functions.kick.clean_up")
    shop.follow_the_stream("rdq-clean-up")
    task_id = shop.submit()
    shop.invoke("rdq-sweeper", {"queues": [QUEUE]})
    assert [kind[:1] for kind in shop.items_of(task_id)] == ["A", "T"]
    shop.remove_row(task_id)
    until(lambda: shop.items_of(task_id) == [], patience=PATIENCE)


def test_the_intake_stores_what_it_is_given(shop: Shop) -> None:
    shop.configure(QUEUE)
    shop.deploy("rdq-intake", "functions.intake.handler")
    receipt = shop.invoke("rdq-intake", event("scheduler"))
    assert shop.rdq.get(receipt["id"]).payload == b'{"order":17}'


def test_the_benchmark_of_the_kick_tells_both_kinds_of_start() -> None:
    command = [sys.executable, "-m", "benchmarks.kick", "1"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split(" median")[0].strip() for line in answer.stdout.splitlines()] == [
        "due at submit",
        "due two seconds later",
    ]
