"""docs/api.md, made of the public names of `rdq_core`: signatures and docstrings.

python -m tests.docs.api_reference        writes it
"""

import enum
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import rdq_core

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "api.md"
_INTRODUCTION: Final = """# API reference

Generated from `rdq_core.__all__` by `make reference`; don't edit it by hand. Everything here is
imported from `rdq_core`. [Writing handlers](handlers.md) and [Adopting rdq](adopt.md) show how it
is used, [Glossary](glossary.md) explains the terms. Errors are in `rdq_core.errors`, the test kit
is in `rdq_core.testing`.
"""
_GROUPS: Final = {
    "Submitting and following tasks": ("Rdq", "NewTask", "Receipt", "Task", "Status", "TaskResult"),
    "Handlers": ("Registry", "TaskContext", "Abort", "Retryable", "RetryAfter", "Outcome"),
    "Typed tasks": ("task", "TaskDefinition", "Retry"),
    "Guards and other ways in": ("Done", "Deferred", "sqs_consumer", "lambda_handler", "Outbox"),
    "Submits in a transaction": ("Prepared", "Explanation", "Why"),
}
_WIDTH: Final = 96


def reference() -> str:
    """The whole document. Raises ValueError when a public name is in no group, or in two."""
    grouped = [name for names in _GROUPS.values() for name in names]
    if sorted(grouped) != sorted(rdq_core.__all__):
        raise ValueError(f"group these names: {sorted(set(grouped) ^ set(rdq_core.__all__))}")
    parts = [_INTRODUCTION]
    for heading, names in _GROUPS.items():
        parts.append(f"\n## {heading}\n")
        parts += [_entry(name, getattr(rdq_core, name)) for name in names]
    return "".join(parts)


def _entry(name: str, value: Any) -> str:
    if inspect.isfunction(value):
        return f"\n### {name}\n\n{_code(_signature(name, value))}\n{_prose(value)}"
    lines = [f"\n### {name}\n\n"]
    if not issubclass(value, enum.Enum) and inspect.isfunction(value.__init__):
        lines.append(_code(_signature(name, value.__init__)) + "\n")
    lines.append(_prose(value))
    if issubclass(value, enum.Enum):
        lines.append("\n" + ", ".join(f"`{member.name}`" for member in value) + "\n")
    for member, attribute in vars(value).items():
        if not member.startswith("_"):
            lines.append(_member(name, member, attribute))
    return "".join(lines)


def _member(owner: str, name: str, attribute: Any) -> str:
    function = attribute.__func__ if isinstance(attribute, classmethod) else attribute
    if isinstance(attribute, property) and attribute.fget is not None:
        kind = _type(inspect.signature(attribute.fget).return_annotation)
        return f"\n#### {owner}.{name}\n\n`{kind}`\n\n{_prose(attribute)}"
    if inspect.isfunction(function):
        return f"\n#### {owner}.{name}\n\n{_code(_signature(name, function))}\n{_prose(function)}"
    return ""


class _Unquoted:
    """An annotation, or a default, that is printed as its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The signature as source text, one parameter a line where it is long."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_annotation(each.annotation), default=_default(each.default))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    returns = signature.return_annotation
    if function.__name__ == "__init__":
        returns = inspect.Signature.empty
    shown = inspect.Signature(parameters, return_annotation=_annotation(returns))
    text = f"{name}{shown}"
    if len(text) <= _WIDTH:
        return text
    lines = [str(each) for each in parameters]
    keyword = next(
        (index for index, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None
    )
    if keyword is not None:
        lines.insert(keyword, "*")
    end = str(inspect.Signature(return_annotation=shown.return_annotation)).removeprefix("(")
    return "\n".join([f"{name}(", *(f"    {line}," for line in lines), end])


def _annotation(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    return _Unquoted(_type(annotation))


def _default(default: Any) -> Any:
    if isinstance(default, enum.Enum):
        return _Unquoted(str(type(default).__name__ + "." + default.name))
    if inspect.isroutine(default):
        return _Unquoted(default.__name__)
    return _Unquoted("...") if repr(default) == "<factory>" else default


def _type(annotation: Any) -> str:
    """An annotation without modules and quotes, the same for every version of Python."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)
    return text.replace("~", "").replace("NoneType", "None")


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _prose(value: Any) -> str:
    """A docstring as paragraphs; indented parts stay as they are."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n".join(
        f"{paragraph}\n" if paragraph.startswith(" ") else f"{_wrapped(paragraph)}\n"
        for paragraph in paragraphs
    )


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), 100, break_on_hyphens=False)


if __name__ == "__main__":
    DOCUMENT.write_text(reference(), encoding="utf-8")
