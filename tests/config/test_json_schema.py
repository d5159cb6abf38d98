"""The JSON Schema that editors check queue files with is the one that the models give."""

import json
from pathlib import Path

from rdq_core.config.schema import json_schema_text

FILE = Path(__file__).parents[2] / "docs" / "queues.schema.json"


def test_the_file_is_current() -> None:
    assert FILE.read_text() == json_schema_text(), (
        "python -m rdq_core.config.schema > docs/queues.schema.json"
    )


def test_every_key_is_explained() -> None:
    schema = json.loads(FILE.read_text())
    mappings = [schema, *schema["$defs"].values()]
    silent = [
        (mapping.get("title"), key)
        for mapping in mappings
        for key, value in mapping.get("properties", {}).items()
        if "description" not in value and "$ref" not in value and key != "queues"
    ]
    assert silent == []
    assert all(
        mapping.get("additionalProperties") is False
        for mapping in mappings
        if "properties" in mapping
    )
