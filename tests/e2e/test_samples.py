"""The sample stacks, deployed beside rdq's by what their READMEs say: a function that exists, and
an SQS consumer.
"""

import base64
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from rdq_core import Outcome, Status
from rdq_core.errors import TaskNotFound
from tests.e2e.stack import EVERY, PATIENCE, Actor, Stack
from tests.engine.world import until
from tests.infra.templates import INFRA_BIN, run_infra
from tests.support.engines import REGION
from tests.support.ministack import ROOT

pytestmark = [pytest.mark.ministack, pytest.mark.slow]

SAMPLES: Final = ROOT / "samples"
CARDS: Final = {
    "tok_visa": Status.SUCCEEDED,
    "tok_declined": Status.DEAD,
    "tok_outage": Status.DEAD,
}


class Shop:
    """A folder to type a README's commands in, with outputs of rdq's stack at hand."""

    def __init__(self, stack: Stack, folder: Path, built: Path) -> None:
        self.stack, self.folder = stack, folder
        (folder / "dist").mkdir()
        (folder / "dist" / "rdq-functions-arm64.zip").write_bytes(built.read_bytes())
        (folder / "samples").symlink_to(SAMPLES)

    def deploy(self, sample: str) -> None:
        """Type what the README says, the dots being the stack's outputs."""
        readme = (SAMPLES / sample / "README.md").read_text()
        for line in re.findall(r"^    ((?:aws|cp|zip) .*)$", readme, re.MULTILINE):
            filled = re.sub(
                r"(\w+)=\.\.\.", lambda found: f"{found[1]}={self.stack.outputs[found[1]]}", line
            )
            path = f"{INFRA_BIN}{os.pathsep}{os.environ['PATH']}"
            environ = {
                **os.environ,
                "PATH": path,
                "AWS_ENDPOINT_URL": self.stack.account.server.endpoint_url,
            }
            environ |= {"AWS_DEFAULT_REGION": REGION}
            done = subprocess.run(
                shlex.split(filled.replace("acme-rdq-code", "code")),
                cwd=self.folder,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{filled}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def shop(deployed: Stack, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(deployed, tmp_path_factory.mktemp("shop"), built)


@pytest.fixture(scope="module")
def operator(deployed: Stack) -> Actor:
    role = deployed.account.role("oncall", deployed.outputs["OperatorPolicyArn"])
    return Actor(deployed, deployed.account.assume(role))


@pytest.fixture(scope="module")
def checkout(deployed: Stack) -> Actor:
    role = deployed.account.role("shop", deployed.outputs["SubmitterPolicyArn"])
    return Actor(deployed, deployed.account.assume(role))


@pytest.mark.parametrize("sample", ["payments", "sqs-consumer"])
def test_a_sample_stack_is_clean(sample: str) -> None:
    assert run_infra("cfn-lint", str(SAMPLES / sample / "template.yaml")) == ""


def test_payments_are_charged_retried_and_sent_back(
    shop: Shop, operator: Actor, checkout: Actor
) -> None:
    shop.deploy("payments")
    rdq = checkout.rdq
    cards = {
        card: rdq.submit("payments.charge", "charge-payment", {"id": card, "card": card}).id
        for card in CARDS
    }

    def ended(card: str, status: Status) -> None:
        until(lambda: rdq.get(cards[card]).status is status, patience=PATIENCE, every=EVERY)

    for card, status in CARDS.items():
        ended(card, status)
    assert [len(rdq.get(cards[card]).attempts) for card in CARDS] == [1, 1, 3]
    mended = base64.b64encode(json.dumps({"id": "7", "card": "tok_visa"}).encode()).decode()
    order = {"queue": "payments.charge", "ids": [cards["tok_outage"]], "payload_base64": mended}
    assert operator.ask(op="dlq.redrive", **order, reason="another card")["done"] == 1
    ended("tok_outage", Status.SUCCEEDED)
    (alarm,) = shop.stack.account.client("cloudwatch").describe_alarms(AlarmNamePrefix="payments")[
        "MetricAlarms"
    ]
    assert {each["Name"]: each["Value"] for each in alarm["Dimensions"]} == {
        "service": "rdq-prod",
        "queue": "payments.charge",
    }


def test_a_message_that_fails_becomes_a_task_and_succeeds_later(
    shop: Shop, checkout: Actor
) -> None:
    shop.deploy("sqs-consumer")
    sqs = shop.stack.account.client("sqs")
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    body = json.dumps({"id": "7", "warehouse": "slow"})
    message = sqs.send_message(QueueUrl=url, MessageBody=body)["MessageId"]

    def is_done() -> bool:
        try:
            return checkout.rdq.get(queue="orders.fulfil", key=message).status is Status.SUCCEEDED
        except TaskNotFound:
            return False

    until(is_done, patience=PATIENCE, every=EVERY)
    task = checkout.rdq.get(queue="orders.fulfil", key=message)
    assert [each.outcome for each in task.attempts] == [Outcome.RETRYABLE_FAILURE, Outcome.SUCCESS]
    assert checkout.rdq.result(task.id).output == "order 7 goes out from slow"
