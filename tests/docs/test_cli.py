"""docs/cli.md matches the commands, and the examples of help texts are valid command lines."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rdq_core.cli.app import app
from tests.docs.cli_reference import reference

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^  (rdq .+)$", re.MULTILINE)


def commands(group: Any = None, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command and group with its path."""
    group = group or typer.main.get_command(app)
    found = [(path, group)]
    for name in getattr(group, "commands", {}):
        below = group.commands[name]
        found += (
            commands(below, (*path, name))
            if hasattr(below, "commands")
            else [((*path, name), below)]
        )
    return found


def shown_examples() -> list[str]:
    texts = [re.sub(r"\\\n\s+", "", command.epilog or "") for _, command in commands()]
    return [line for text in texts for line in EXAMPLE.findall(text)]


def test_the_reference_matches_the_commands() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page == reference(), "make reference updates it"


def test_every_command_is_in_the_reference() -> None:
    page = reference()
    paths = [
        " ".join(("rdq", *path)) for path, command in commands() if not hasattr(command, "commands")
    ]
    assert len(paths) >= 30
    assert [path for path in paths if f"## {path}\n" not in page] == []


@pytest.mark.parametrize("line", shown_examples())
def test_an_example_in_a_help_text_is_a_command_line_that_exists(line: str) -> None:
    program, *arguments = shlex.split(re.split(r"  | \| ", line)[0])
    assert program == "rdq"
    command: Any = typer.main.get_command(app)
    context: Any = command.make_context("rdq", list(arguments), resilient_parsing=True)
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        command = command.commands[name]
    context = command.make_context(name, list(arguments), parent=context)
    assert context.params


def test_the_commands_for_on_call_have_examples() -> None:
    with_examples = {" ".join(path) for path, command in commands() if command.epilog}
    assert with_examples >= {
        "",
        "status",
        "dlq list",
        "dlq show",
        "dlq groups",
        "dlq redrive",
        "dlq purge",
        "task list",
        "task cancel",
        "job resume",
        "audit list",
    }
