"""The JSON Schema of a configuration file, for editors, made of the table of settings.

python -m rdq_core.config.schema > docs/queues.schema.json
"""

import ast
import inspect
import json
import sys
from itertools import pairwise
from typing import Any

from rdq_core.config.kinds import TextList, ValueKind
from rdq_core.config.sections import Part, PartMap, Section, Setting, SettingKind, keys_of
from rdq_core.config.settings import ConfigFile


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a file."""
    definitions: dict[str, Any] = {}
    schema = _mapping(ConfigFile, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": dict(sorted(definitions.items())),
        **schema,
        "required": ["config_version"],
        "title": "rdq queue configuration",
    }


def json_schema_text() -> str:
    """The JSON Schema as it is kept in `docs/queues.schema.json`."""
    return json.dumps(json_schema(), indent=2) + "\n"


def meanings_of(section: type[Section]) -> dict[str, str]:
    """The docstrings below the declarations of a section's keys.

    Python doesn't keep them, so they are read from the source.
    """
    meanings: dict[str, str] = {}
    for each in section.__mro__:
        if issubclass(each, Section):
            (definition,) = ast.parse(inspect.getsource(each)).body
            for declared, below in pairwise(getattr(definition, "body", [])):
                match declared, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=key)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        meanings[key] = " ".join(text.split())
    return meanings


def _mapping(section: type[Section], definitions: dict[str, Any]) -> dict[str, Any]:
    meanings = meanings_of(section)
    return {
        "additionalProperties": False,
        "description": _one_line(section.__doc__),
        "properties": {
            key: _described(key, setting, meanings.get(key, ""), definitions)
            for key, setting in keys_of(section).items()
        },
        "title": section.__name__,
        "type": "object",
    }


def _described(
    key: str, setting: Setting[Any, Any], meaning: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    schema = _of_kind(setting.kind, definitions)
    if "$ref" in schema:
        return schema
    return schema | {"description": meaning, "title": key.replace("_", " ").title()}


def _of_kind(kind: SettingKind[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case ValueKind():
            return dict(kind.json)
        case TextList():
            return {
                "type": "array",
                "items": {**kind.item.json, "description": _capital(kind.item)},
            }
        case Part():
            if kind.section.__name__ not in definitions:
                definitions[kind.section.__name__] = _mapping(kind.section, definitions)
            return {"$ref": f"#/$defs/{kind.section.__name__}"}
        case PartMap():
            return {
                "type": "object",
                "patternProperties": {
                    kind.name.json["pattern"]: _of_kind(Part(kind.section), definitions)
                },
                "propertyNames": {"description": _capital(kind.name)},
            }
        case _:
            raise TypeError(kind)


def _capital(kind: ValueKind[Any]) -> str:
    return kind.accepted[0].upper() + kind.accepted[1:]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
