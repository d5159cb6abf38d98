"""The SAM template as CloudFormation understands it without a transform.

The construct is made of it, so both ways of deploying create the same system, and there is nothing
to keep in step.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from samtranslator.translator.transform import transform

_SHIPPED: Final = Path(__file__).with_name("template.yaml")
_IN_REPOSITORY: Final = Path(__file__).parents[2] / "sam" / "template.yaml"


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's tags, each expanded to the function it abbreviates."""


def _function(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    match node:
        case yaml.ScalarNode():
            value: Any = loader.construct_scalar(node)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _function)


class _NoPolicies:
    """The template attaches no AWS managed policy by name."""

    def load(self) -> dict[str, str]:
        return {}


def source() -> dict[str, Any]:
    """The template as it is in its file."""
    path = _SHIPPED if _SHIPPED.exists() else _IN_REPOSITORY
    # a safe loader with functions
    template: dict[str, Any] = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506
    return template


def translated() -> dict[str, Any]:
    """The template with its functions as Lambda's own resources. The translator wants a region,
    whichever.
    """
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    template: dict[str, Any] = transform(source(), {}, _NoPolicies())
    return template


def written(template: Mapping[str, Any]) -> str:
    """The path of a file with a template, as CDK reads them from files only."""
    handle, path = tempfile.mkstemp(suffix=".json", prefix="rdq-template-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(template, file)
    return path


if __name__ == "__main__":
    json.dump({"source": source(), "translated": translated()}, sys.stdout)
