"""`rdq queue apply`, `check`, `diff`: configuration files."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import content
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking
from rdq_core.cli.failures import CONFLICT, tell
from rdq_core.cli.mutations import refusal
from rdq_core.cli.queue import shown
from rdq_core.cli.screen import Screen, counted
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


def check(screen: Screen, *, file: File) -> None:
    """Check a file without looking at what is stored. Needs no AWS."""
    document = _read(file)
    answer = listed({"queue": queue, "result": "valid"} for queue in document.queues)
    screen.show(answer, lambda: _tell_valid(screen, file, document))


def _tell_valid(screen: Screen, file: str, document: Document) -> None:
    screen.line(f"{_named(file)} is valid: {counted(len(document.queues), 'queue')}")
    screen.next(f"rdq queue diff {_named(file)}")


def diff(screen: Screen, *, file: File) -> int | None:
    """Show how a file differs from what is declared. Exit code 4 when it does; nothing is changed."""
    answer = Asking(screen)("queue.diff", config=_config(_read(file)))
    differs = any(each["result"] != Change.UNCHANGED for each in answer["items"])
    screen.show(answer, lambda: _tell_differences(screen, file, answer["items"], differs=differs))
    return CONFLICT if differs else None


def _tell_differences(
    screen: Screen, file: str, differences: Sequence[Mapping[str, Any]], *, differs: bool
) -> None:
    for each in differences:
        screen.line(f"{each['queue']}: {_RESULTS[each['result']]}")
        if each["changes"]:
            rows = [
                (change["key"], shown(change["stored"]), shown(change["file"]))
                for change in each["changes"]
            ]
            screen.table(["setting", "stored", "file"], rows, stretch=2)
        if each.get("override_suspended"):
            screen.line("its override contradicts the file and would be suspended")
    screen.next(
        f"rdq queue apply {_named(file)}" if differs else f"rdq queue get {differences[0]['queue']}"
    )


_RESULTS: Final[Mapping[str, str]] = {
    Change.CREATED: "would be created",
    Change.CHANGED: "would be changed",
    Change.UNCHANGED: "is as the file says",
    Change.RESTORED: "is being deleted, and would stay",
}


def apply(screen: Screen, *, file: File) -> int | None:
    """Declare the queues of a file. Queues that it doesn't name are never touched."""
    answer = Asking(screen)("queue.apply", config=_config(_read(file)))
    applied = answer["items"]
    screen.show(answer, lambda: _tell_applied(screen, applied))
    refused = [each["error"] for each in applied if "error" in each]
    for error in refused:
        tell(refusal(error), as_json=not screen.is_for_people)
    return CONFLICT if refused else None


def _tell_applied(screen: Screen, applied: Sequence[Mapping[str, Any]]) -> None:
    screen.table(
        ["queue", "result", "revision"],
        [(each["queue"], each["result"], each["revision"]) for each in applied],
        stretch=0,
    )
    for each in applied:
        if each.get("override_suspended"):
            screen.line(
                f"the override of {each['queue']} contradicts what was declared and is suspended"
            )
    screen.next(f"rdq queue get {applied[0]['queue']}")


def _config(document: Document) -> dict[str, Any]:
    """A file that was read and checked here, as requests have it: what is wrong in it is told with
    its line.
    """
    return {
        "config_version": 1,
        "defaults": dict(document.defaults),
        "queues": dict(document.queues),
    }


def _read(file: str) -> Document:
    try:
        return checked(parse_document(content(file, "file")))
    except ConfigInvalid as refused:
        if refused.path != THE_FILE:
            raise
        raise ConfigInvalid(
            "standard input" if file == "-" else file, refused.problem, hint=refused.hint
        ) from None


def _named(file: str) -> str:
    return "FILE" if file == "-" else file
