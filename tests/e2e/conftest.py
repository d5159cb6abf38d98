"""One server and one package for all; each template is deployed once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Account, Stack, package
from tests.infra.templates import SAM
from tests.support.ministack import Ministack

HANDLER = """
import os
from pathlib import Path

def handler(order, context):
    tried = Path(os.environ["EFFECTS"]) / order["id"]
    first = not tried.exists()
    tried.touch()
    if order["id"].startswith("flaky") and first:
        raise TimeoutError("the bank did not answer")
    if order["id"].startswith("poison") and not (tried.parent / "mended").exists():
        raise ValueError("no such account")
    return {"charged": order["id"]}
"""
OF_THE_SAMPLES = ("payments-charge", "orders-retry")
QUEUES = """
config_version: 1
queues:
  billing:
    index_shards: 1
    retry: {max_attempts: 2, initial_backoff: 1s, jitter: 0}
    execution: {handler_timeout: 2m, lease: 10m}  # allows for a cold start
    handlers:
      charge: {function: charge}
"""


@pytest.fixture(scope="session")
def account() -> Iterator[Account]:
    """An account that decides by IAM."""
    with Ministack(auth=True) as server:
        yield Account(server)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions' package."""
    return package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the application's function leaves what it has done."""
    return tmp_path_factory.mktemp("effects")


@pytest.fixture(scope="session")
def deployed(account: Account, built: Path, effects: Path) -> Stack:
    """The shipped SAM template with a queue whose handler is a function that fails and succeeds."""
    account.put_package("code", "rdq.zip", built)
    charge = account.function("charge", HANDLER, EFFECTS=str(effects))
    return account.deploy(
        "rdq-prod",
        SAM.read_text(),
        CodeBucket="code",
        CodeKey="rdq.zip",
        Architecture="x86_64",
        # Those of the samples are named before they are there.
        HandlerFunctionArns=",".join(
            [charge, *(charge.replace("charge", name) for name in OF_THE_SAMPLES)]
        ),
        QueueConfiguration=QUEUES,
    )
