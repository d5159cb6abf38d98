"""docs/settings.md is what the table of settings says, and has every key."""

from collections.abc import Iterator

from rdq_core.config.sections import Part, PartMap, Section, keys_of
from rdq_core.config.settings import Queue
from tests.docs.settings_reference import DOCUMENT, page


def test_the_page_is_current() -> None:
    assert DOCUMENT.read_text() == page(), "make reference writes it anew"


def paths(section: type[Section], above: str = "") -> Iterator[str]:
    for key, setting in keys_of(section).items():
        match setting.kind:
            case Part():
                yield from paths(setting.kind.section, f"{above}{key}.")
            case PartMap():
                yield from paths(setting.kind.section, f"{above}{key}.REF.")
            case _:
                yield f"{above}{key}"


def test_every_key_has_a_row_with_a_meaning() -> None:
    rows = [
        [cell.strip() for cell in line.split(" | ")]
        for line in page().splitlines()
        if line.startswith("| `")
    ]
    keys = [row[0].removeprefix("| ").strip("`") for row in rows]
    assert sorted(keys) == sorted(paths(Queue))
    assert all(row[3] for row in rows)
