"""Generates docs/cli.md from the commands.

python -m tests.docs.cli_reference > docs/cli.md
"""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import typer.main

from rdq_core.cli.app import app

_INTRODUCTION = """# The command line

Generated from the commands by `make reference`; don't edit it by hand. `rdq COMMAND --help` shows
the same.

Commands use the AWS settings of the environment (`AWS_ENDPOINT_URL` included) and the tables named
by the four `RDQ_*_TABLE` variables. Those with `--via FUNCTION` can send their requests to the ops
function instead. Every command takes `-o table|json|jsonl` (`--json` is short for `-o json`),
`--utc` and `--debug`.

Exit codes: 0 done; 1 a bug in rdq; 2 wrong usage or input; 3 not found; 4 conflict; 5 AWS
unreachable, access denied or a table missing; 130 interrupted by Ctrl-C.
"""
_EVERYWHERE = {
    "--output",
    "--json",
    "--utc",
    "--debug",
    "--help",
    "--install-completion",
    "--show-completion",
}


def reference() -> str:
    """The whole document."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("rdq", [], resilient_parsing=True)
    return _INTRODUCTION + "".join(_commands(root, context)) + "\n"


def _commands(group: Any, context: Any) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = type(context)(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from _commands(command, below)
        else:
            yield _section(command, below)


def _section(command: Any, context: Any) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [
        f"\n## {context.command_path}\n\n{_prose(command.help)}\n\n```text\n{_joined(usage)}\n```\n"
    ]
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        parts.append(
            "\n| | |\n|---|---|\n"
            + "".join(f"| `{_cell(left)}` | {_cell(right)} |\n" for left, right in rows)
        )
    if command.epilog:
        examples = textwrap.dedent(command.epilog.removeprefix("\b\nExamples:\n"))
        parts.append(f"\n```text\n{examples.rstrip()}\n```\n")
    return "".join(parts)


def _row(parameter: Any, context: Any) -> tuple[str, str] | None:
    if _EVERYWHERE & set(parameter.opts):
        return None
    record = parameter.get_help_record(context)
    return None if record is None else (record[0], " ".join(record[1].split()))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _prose(text: str) -> str:
    return "\n\n".join(_joined(paragraph) for paragraph in text.split("\n\n"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
