"""`rdq` as a shell would run it, in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from rdq_core.stores.dynamodb.schema import Tables
from tests.support.engines import Engine

HERE: Final = Path(__file__).parent
RDQ: Final = str(Path(sys.executable).with_name("rdq"))
TABLES: Final = Tables("rdq-tasks", "rdq-dlq", "rdq-control", "rdq-audit")


class Commands:
    """Commands against one engine; `environment` is what the workers' handlers are told besides."""

    def __init__(self, engine: Engine, **environment: str) -> None:
        self._environment = {
            **engine.environment,
            "PATH": os.environ["PATH"],
            "NO_PROXY": "127.0.0.1",
            **environment,
        }

    def run(self, *arguments: str, given: bytes = b"") -> Any:
        """The document that a command prints."""
        done = subprocess.run(
            [RDQ, *arguments, "-o", "json"],
            input=given,
            capture_output=True,
            cwd=HERE,
            env=self._environment,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A worker that has been started. It is the caller's to end and to reap."""
        return subprocess.Popen(
            [RDQ, "worker", *arguments, "-o", "json"],
            cwd=HERE,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
