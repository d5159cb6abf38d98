"""The shell session of the README, typed as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
OURS = ("AWS_", "RDQ_")


@pytest.mark.slow
def test_a_newcomer_gets_from_nothing_to_a_dead_letter_sent_back(tmp_path: Path) -> None:
    (session,) = re.findall(r"^```sh\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    commands = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    typed = subprocess.run(
        ["/bin/sh", "-e", "-c", f"trap 'kill $!' EXIT\n{session}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert typed.returncode == 0, typed.stderr
    assert "nothing to charge" in typed.stdout
    assert "1 task sent back to billing" in typed.stdout
    assert "SUCCEEDED" in typed.stdout.partition("sent back")[2]
