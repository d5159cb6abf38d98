"""The templates as data: the SAM source, its translation, and how their parts are found."""

import copy
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import yaml

from tests.support.ministack import ROOT

INFRA_BIN: Final = ROOT / ".venv-infra" / "bin"
SAM: Final = ROOT / "infra" / "sam" / "template.yaml"
TRANSLATE: Final = ROOT / "tests" / "infra" / "translate.py"
_LIST_OF: Final = {"GetAtt"}

Template = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's tags, each as the function that it is short for."""


def _function(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    value: Any
    match node:
        case yaml.ScalarNode():
            value = loader.construct_scalar(node)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    if suffix in _LIST_OF and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _function)


@cache
def _source() -> Template:
    template: Template = yaml.load(SAM.read_text(), _Loader)
    return template


def sam() -> Template:
    """The SAM template as it is shipped; the caller may change it."""
    return copy.deepcopy(_source())


@cache
def _translation() -> str:
    return run_infra("python", str(TRANSLATE), stdin=json.dumps(_source()))


def translated() -> Template:
    """What CloudFormation makes of the SAM template."""
    template: Template = json.loads(_translation())
    return template


def run_infra(tool: str, *arguments: str, stdin: str = "") -> str:
    """What a tool of the third environment prints. An error is told with all that it has said."""
    done = subprocess.run(
        [INFRA_BIN / tool, *arguments], input=stdin, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, f"{tool} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The properties of every resource of a type, by its logical id."""
    resources = template["Resources"].items()
    return {name: resource.get("Properties", {}) for name, resource in resources if resource["Type"] == kind}


def as_list(value: Any) -> list[Any]:
    """What CloudFormation takes one of or a list of."""
    return value if isinstance(value, list) else [value]


def statements(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A policy's statements, those included that a condition may leave out."""
    return [each["Fn::If"][1] if "Fn::If" in each else each for each in document["Statement"]]
