"""The page docs/settings.md, made of the table of settings.

python -m tests.docs.settings_reference        writes it
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rdq_core.config.kinds import TextList, ValueKind
from rdq_core.config.merge import leaves
from rdq_core.config.schema import meanings_of
from rdq_core.config.sections import Part, PartMap, Section, Setting, SettingKind, keys_of
from rdq_core.config.settings import Queue, QueueDefaults, Retry
from rdq_core.domain.units import DURATION_FORMS
from rdq_core.handlers.policy import layer_of

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "settings.md"

_HEAD: Final = """\
# Settings

Every key of a queue's configuration. `make reference` writes this page from the table in
`rdq_core/config/settings.py` and `targets.py`; don't edit it by hand.
[Queue configuration](queues.md) explains the file and the layers.

A key has one value per layer, and the highest layer that sets it wins:

| layer | set by |
|---|---|
| override | an operator: `rdq queue set QUEUE KEY=VALUE --reason TEXT` |
| queue | the queue's entry in a file, or `rdq_core.config.builder.Queue` |
| task | the options of a typed task, `@task(...)`, on hosts that have registered it |
| defaults | the `defaults` of the file that declares the queue |
| built-in | the default on this page |

A duration is a number with its unit: `500ms`, `1s`, `10m`, `24h` or `7d`. Text is printable;
what YAML reads as something else (`NO`, `1.10`) must be quoted.
"""
_EVERYWHERE: Final = ("override", "queue", "defaults")


def page() -> str:
    """The page as the table of settings has it."""
    return "\n".join([_HEAD, *_sections(Queue, "")])


def _sections(section: type[Section], path: str) -> Iterator[str]:
    """The section's keys of its own, then the sections below it."""
    below = [(f"{path}{key}", setting) for key, setting in keys_of(section).items()]
    single = [(key, each) for key, each in below if isinstance(each.kind, ValueKind | TextList)]
    heading = f"`{path.removesuffix('.')}`" if path else "The queue itself"
    summary = " ".join((section.__doc__ or "").split("\n\n")[0].split())
    yield f"## {heading}\n\n{summary}\n" if path else f"## {heading}\n"
    yield "| key | default | accepted | meaning | set in |\n|---|---|---|---|---|"
    meanings = meanings_of(section)
    for key, setting in single:
        yield _row(key, setting, meanings[key.rpartition(".")[2]])
    yield ""
    for key, setting in below:
        match setting.kind:
            case Part():
                yield from _sections(setting.kind.section, f"{key}.")
            case PartMap():
                yield from _sections(setting.kind.section, f"{key}.REF.")


def _row(key: str, setting: Setting[Any, Any], meaning: str) -> str:
    default = "" if setting.default in (None, []) else f"`{setting.default}`"
    cells = [f"`{key}`", default, _accepted(setting.kind), meaning, ", ".join(_layers(key))]
    return f"| {' | '.join(cells)} |"


def _accepted(kind: SettingKind[Any]) -> str:
    accepted = f"a list; each {kind.item.accepted}" if isinstance(kind, TextList) else kind.accepted
    return accepted.replace(DURATION_FORMS, "a duration").replace("printable text", "text")


def _layers(key: str) -> Iterator[str]:
    in_defaults = key.partition(".")[0] in keys_of(QueueDefaults)
    yield from (layer for layer in _EVERYWHERE if in_defaults or layer != "defaults")
    yield from (f"task: `{option}`" for option in _options_of_a_task(key))


def _options_of_a_task(key: str) -> Iterator[str]:
    section, _, name = key.partition(".")
    if section == "retry" and name in keys_of(Retry):
        yield f"retry=Retry({name}=...)"
    if key in leaves(layer_of("", timeout="1m")):
        yield "timeout=..."
    if key in leaves(layer_of("", retention="1d")):
        yield "retention=..."


if __name__ == "__main__":
    DOCUMENT.write_text(page())
