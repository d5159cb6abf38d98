"""The product keeps the architecture's rules, and each rule finds a planted violation."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.source import Source, sources

Rule = Callable[[Source], Iterator[str]]

RULES: list[Rule] = [
    rules.turned_arrows,
    rules.foreign_imports,
    rules.knowing_infra,
    rules.impure_domain,
    rules.vague_names,
    rules.long_files,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_product_keeps_the_rule(rule: Rule) -> None:
    assert [violation for source in sources() for violation in rule(source)] == []


PLANTED = {
    "rdq_core/domain/a.py": "from rdq_core.engine import run",
    "rdq_core/engine/b.py": "def late():\n    import rdq_core.stores.memory",
    "rdq_core/stores/c.py": "from ..ops import audit",
    "rdq_core/cli/d.py": "from rdq_core.testing import moto",
    "rdq_core/ops/e.py": "import boto3",
    "rdq_core/engine/f.py": "from botocore.exceptions import ClientError",
    "rdq_core/client/g.py": "from aws_lambda_powertools import Logger",
    "rdq_core/runtime/h.py": "import moto",
    "functions/i.py": "import rich.console",
    "rdq_core/testing/n.py": "import pytest",
    "infra/cdk/j.py": "from rdq_core.client import Rdq",
    "rdq_core/domain/k.py": "import random",
    "rdq_core/domain/l.py": "import datetime\n\nnow = datetime.datetime.now()",
    "rdq_core/engine/utils.py": "",
    "rdq_core/engine/m.py": "x = 1\n" * 401,
    "rdq_core/errors.py": "import rdq_core.domain",
    "rdq_core/stores/dynamodb/__init__.py": "from ...handlers import registry",
}

ALLOWED = {
    "rdq_core/cli/demo.py": "def demo():\n    from rdq_core.testing.moto import AtomicMotoServer",
    "rdq_core/stores/dynamodb/tasks.py": "import boto3\nfrom .schema import Tables\n"
    "from rdq_core.engine import ports",
    "rdq_core/domain/task.py": "from rdq_core.errors import InputInvalid\n"
    "from datetime import datetime",
    "rdq_core/engine/long.py": '"""Words.\n'
    + "\n".join(["more"] * 500)
    + '\n"""\n'
    + "# words\n\n" * 500
    + "x = 1\n" * 400,
    "rdq_core/client/rdq.py": "from rdq_core.runtime import clock\nfrom rdq_core.ops import audit",
    "functions/sweeper.py": "from aws_lambda_powertools import Logger\n"
    "from rdq_core.client import Rdq",
    "infra/cdk/app.py": "from rdq_core.stores.dynamodb.schema import TASKS",
}


def planted(root: Path, file: str, code: str) -> list[str]:
    """What the rules say about a tree of this one file."""
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(code, encoding="utf-8")
    return [violation for source in sources(root) for rule in RULES for violation in rule(source)]


@pytest.mark.parametrize("file", PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, file: str) -> None:
    assert len(planted(tmp_path, file, PLANTED[file])) == 1


@pytest.mark.parametrize("file", ALLOWED)
def test_what_is_allowed_is_no_violation(tmp_path: Path, file: str) -> None:
    assert planted(tmp_path, file, ALLOWED[file]) == []
