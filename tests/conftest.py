"""Fixtures for every test, and what they are kept from: a real AWS account."""

import signal
from pathlib import Path
from typing import Final

import hypothesis
import pytest

_TESTS: Final = Path(__file__).parent
_SLOW_FOLDERS: Final = {"cli", "docs", "dynamodb", "infra", "samples", "testing_kit"}
"""Folders of tests/ whose tests create tables or start processes."""

# How long an example takes says more about the machine than about rdq. And the same examples each
# time: what chance finds is for `make fuzz` and `make simulate`, whose numbers bring it back.
hypothesis.settings.register_profile(
    "rdq", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("rdq")

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process that
# they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract")  # its modules are no test files by name
pytest_plugins = [
    "tests.support.engines",
    "tests.support.stores",
    "tests.support.logs",
    "tests.infra.synthesis",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make fast` what needs no tables."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        on_moto = "moto" in getattr(item, "fixturenames", ()) or "moto" in map(
            str, parameters.values()
        )
        # Relative to tests/: a checkout may itself lie below a folder named "docs".
        if on_moto or _SLOW_FOLDERS.intersection(item.path.relative_to(_TESTS).parts):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def _no_real_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds credentials, a profile, or an address of its developer's own."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
