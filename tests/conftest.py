"""Fixtures for every test, one of which keeps it from real AWS accounts."""

import signal
from pathlib import Path
from typing import Final

import hypothesis
import pytest

_TESTS: Final = Path(__file__).parent
_SLOW: Final = {
    "cli", "docs", "dynamodb", "infra", "samples", "testing_kit",  # create tables, start processes
    "fuzzing",  # 400 inputs at each place
    "test_job_crashes.py",  # a job is stopped at each of its requests
}  # fmt: skip
"""Folders and files of tests/ that `make fast` leaves out."""

# No deadline, because an example's time depends on the machine. The same examples each time: random
# ones belong to `make fuzz` and `make simulate`, which print the number that repeats a failure.
hypothesis.settings.register_profile(
    "rdq", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("rdq")

# A shell that starts the tests in the background makes them, and every process they start, ignore
# SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract")  # its modules are no test files by name
pytest_plugins = [
    "tests.support.engines",
    "tests.support.stores",
    "tests.support.logs",
    "tests.infra.synthesis",
]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't import the files of which `-m "not slow"` would deselect every test."""
    is_fast = "not slow" in config.option.markexpr
    return True if is_fast and _is_slow(collection_path) else None


def _is_slow(path: Path) -> bool:
    # Relative to tests/: a checkout may itself lie below a folder named "docs".
    return path.is_relative_to(_TESTS) and bool(_SLOW & set(path.relative_to(_TESTS).parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what creates tables, starts processes or takes seconds."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        on_moto = "moto" in getattr(item, "fixturenames", ()) or "moto" in map(
            str, parameters.values()
        )
        if on_moto or _is_slow(item.path):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def _no_real_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the credentials, profile or endpoint of the developer who runs it."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
