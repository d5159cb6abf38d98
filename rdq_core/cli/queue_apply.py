"""`rdq queue check`, `diff`, `apply`: work on configuration files."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.failures import CONFLICT, print_error, refusal
from rdq_core.cli.options import read_input
from rdq_core.cli.output import Output, counted
from rdq_core.cli.queue import setting_text
from rdq_core.config.document import Document, parse_document
from rdq_core.config.messages import THE_FILE
from rdq_core.errors import ConfigInvalid
from rdq_core.ops.queues import Change, checked
from rdq_core.ops.views import listed

File = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is standard input.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "check")(check)
    command(app, "diff", asks=True)(diff)
    command(app, "apply", asks=True)(apply)


def check(output: Output, *, file: File) -> None:
    """Validate a file without reading the stored settings. Needs no AWS."""
    document = _read(file)
    answer = listed({"queue": queue, "result": "valid"} for queue in document.queues)
    output.show(answer, lambda: _print_valid(output, file, document))


def _print_valid(output: Output, file: str, document: Document) -> None:
    output.line(f"{_typed(file)} is valid: {counted(len(document.queues), 'queue')}")
    output.next(f"rdq queue diff {_typed(file)}")


def diff(output: Output, *, file: File) -> int | None:
    """Compare a file with the declared settings. Exit code 4 if they differ."""
    answer = OperatorClient(output).request("queue.diff", config=_config(_read(file)))
    differs = any(each["result"] != Change.UNCHANGED for each in answer["items"])
    output.show(answer, lambda: _print_differences(output, file, answer["items"], differs=differs))
    return CONFLICT if differs else None


def _print_differences(
    output: Output, file: str, items: Sequence[Mapping[str, Any]], *, differs: bool
) -> None:
    for each in items:
        output.line(f"{each['queue']}: {_RESULTS[each['result']]}")
        if each["changes"]:
            rows = [
                (change["key"], setting_text(change["stored"]), setting_text(change["file"]))
                for change in each["changes"]
            ]
            output.table(["setting", "stored", "file"], rows, stretch=2)
        if each.get("override_suspended"):
            output.line("its override contradicts the file and would be suspended")
    apply_it = f"rdq queue apply {_typed(file)}"
    output.next(apply_it if differs else f"rdq queue get {items[0]['queue']}")


_RESULTS: Final[Mapping[str, str]] = {
    Change.CREATED: "would be created",
    Change.CHANGED: "would be changed",
    Change.UNCHANGED: "matches the file",
    Change.RESTORED: "is being deleted; applying the file keeps it",
}


def apply(output: Output, *, file: File) -> int | None:
    """Declare the queues of a file. Other queues are not touched."""
    answer = OperatorClient(output).request("queue.apply", config=_config(_read(file)))
    applied = answer["items"]
    output.show(answer, lambda: _print_applied(output, applied))
    refused = [each["error"] for each in applied if "error" in each]
    for error in refused:
        print_error(refusal(error), as_json=not output.is_for_people)
    return CONFLICT if refused else None


def _print_applied(output: Output, applied: Sequence[Mapping[str, Any]]) -> None:
    output.table(
        ["queue", "result", "revision"],
        [(each["queue"], each["result"], each["revision"]) for each in applied],
        stretch=0,
    )
    for each in applied:
        if each.get("override_suspended"):
            output.line(f"the override of {each['queue']} contradicts the file: suspended")
    output.next(f"rdq queue get {applied[0]['queue']}")


def _config(document: Document) -> dict[str, Any]:
    """The file as a request carries it. It is validated here, where errors can name a line."""
    return {
        "config_version": 1,
        "defaults": dict(document.defaults),
        "queues": dict(document.queues),
    }


def _read(file: str) -> Document:
    try:
        return checked(parse_document(read_input(file, "file")))
    except ConfigInvalid as refused:
        if refused.path != THE_FILE:
            raise
        raise ConfigInvalid(
            "standard input" if file == "-" else file, refused.problem, hint=refused.hint
        ) from None


def _typed(file: str) -> str:
    """The file as the next command names it."""
    return "FILE" if file == "-" else file
