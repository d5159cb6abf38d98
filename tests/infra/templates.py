"""The templates as data: the SAM source, its translation, and how their parts are found."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support.ministack import ROOT

INFRA_BIN: Final = ROOT / ".venv-infra" / "bin"
SAM: Final = ROOT / "infra" / "sam" / "template.yaml"
TEMPLATE: Final = ROOT / "infra" / "cdk" / "rdq_cdk" / "template.py"

Template = dict[str, Any]


@cache
def _templates() -> str:
    return run_infra("python", str(TEMPLATE))


def sam() -> Template:
    """The SAM template as it is written; the caller may change it."""
    template: Template = json.loads(_templates())["source"]
    return template


def translated() -> Template:
    """What CloudFormation makes of it."""
    template: Template = json.loads(_templates())["translated"]
    return template


def run_infra(tool: str, *arguments: str, cwd: Path = ROOT, **environ: str) -> str:
    """What a tool of the third environment prints. An error is told with all that it has said."""
    command = [str(INFRA_BIN / tool), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **environ}
    )
    assert done.returncode == 0, (
        f"{tool} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The properties of every resource of a type, by its logical id."""
    resources = template["Resources"].items()
    return {
        name: resource.get("Properties", {})
        for name, resource in resources
        if resource["Type"] == kind
    }


def as_list(value: Any) -> list[Any]:
    """What CloudFormation takes one of or a list of."""
    return value if isinstance(value, list) else [value]


def statements(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A policy's statements, those included that a condition may leave out."""
    return [each["Fn::If"][1] if "Fn::If" in each else each for each in document["Statement"]]
