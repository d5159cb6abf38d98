"""The CDK example beside it: the same system, with a queue and its handler declared by the app."""

import json
from pathlib import Path

import pytest

from rdq_core import Status
from tests.e2e.stack import ACCOUNT, EVERY, PATIENCE, Account, Stack
from tests.engine.world import until
from tests.support.engines import REGION

pytestmark = [pytest.mark.ministack, pytest.mark.slow]

QUEUE = "payments.charge"


@pytest.fixture(scope="module")
def payments(account: Account, built: Path, synthesised: Path) -> Stack:
    """The example's template with the real package as its asset, in an account that was
    bootstrapped for CDK.
    """
    template = json.loads((synthesised / "payments.template.json").read_text())
    template["Resources"]["Schedule"]["Properties"]["State"] = "DISABLED"
    key = template["Resources"]["SweeperFunction"]["Properties"]["Code"]["S3Key"]
    account.put_package(f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}", key, built)
    account.client("ssm").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String"
    )
    return account.deploy("payments", json.dumps(template))


def test_a_task_runs_on_the_function_of_the_app_before_any_schedule(payments: Stack) -> None:
    rdq = payments.acting_as("submitter").rdq
    task_id = rdq.submit(QUEUE, "charge-payment", {"amount": 17}).id
    until(lambda: rdq.get(task_id).status is Status.SUCCEEDED, patience=PATIENCE, every=EVERY)
    assert rdq.result(task_id).output == {"charged": 17}
