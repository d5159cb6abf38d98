"""`rdq dlq redrive`, `purge`: what is done to dead tasks, each time shown and asked before."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.arguments import content
from rdq_core.cli.command import command
from rdq_core.cli.connection import Asking, Document
from rdq_core.cli.dlq import GroupName, HandlerRef, Queue, Since, Type, Until, filters, since_then
from rdq_core.cli.examples import examples
from rdq_core.cli.ids import whole_ids
from rdq_core.cli.jobs import Following
from rdq_core.cli.mutations import ended, left, refusal
from rdq_core.cli.queue_edits import Reason, can_ask, confirmed
from rdq_core.cli.screen import Screen, counted, note, size
from rdq_core.errors import RdqError

_SETTLES: Final = 5.0
_REDRIVES: Final = examples(
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --dry-run",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --canary 10",
    "rdq dlq redrive billing --since 3h --rate 20/s --reason 'fix 17 is out'",
    "rdq dlq redrive billing --all --yes --detach  the sweeps do it",
    "rdq dlq redrive billing ID --payload-file better.json",
)
_PURGES: Final = examples(
    "rdq dlq purge billing --type '*.Duplicate' --dry-run",
    "rdq dlq purge billing --until 2026-07-01T00:00:00Z --reason 'too old to matter'",
)
_OPTIONS: Final = "give ids, or --group, or --all, or filters: --type --handler --since --until"

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="These tasks.")]
Everything = Annotated[bool, typer.Option("--all", help="Every dead task of the queue.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count and price them, and change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Rate = Annotated[
    str | None, typer.Option("--rate", help="How fast, as 50/s; usually the queue's own limit.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Leave it to the sweeps, and come back at once.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "redrive", asks=True, epilog=_REDRIVES)(redrive)
    command(app, "purge", asks=True, epilog=_PURGES)(purge)


@dataclass(frozen=True, slots=True)
class _Words:
    """What an operation is called."""

    op: str
    would: str
    done: str
    question: str


_REDRIVE: Final = _Words(
    "dlq.redrive", "would be sent back to", "sent back to", "send {} back to {}?"
)
_PURGE: Final = _Words(
    "dlq.purge", "would be removed from", "removed from", "remove {} from {} for good?"
)


def redrive(
    screen: Screen,
    *,
    queue: Queue,
    task_ids: Ids = None,
    error_type: Type = None,
    handler: HandlerRef = None,
    since: Since = None,
    until: Until = None,
    group: GroupName = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    canary: Annotated[
        int | None, typer.Option(help="Send so many first, and watch how they fare.")
    ] = None,
    min_success: Annotated[
        float | None, typer.Option(help="The part of the canary that must succeed. [default: 0.9]")
    ] = None,
    canary_wait: Annotated[
        str | None, typer.Option(help="How long the canary is watched. [default: 5m]")
    ] = None,
    reason: Reason = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even those redriven max_redrives times.")
    ] = False,
    yes: Yes = False,
    detach: Detach = False,
    unpin: Annotated[
        bool, typer.Option("--unpin", help="Drop the handler version they are pinned to.")
    ] = False,
    set_version: Annotated[
        str | None, typer.Option(help="Pin them to this handler version.")
    ] = None,
    set_handler: Annotated[str | None, typer.Option(help="Give them to this handler ref.")] = None,
    payload_file: Annotated[
        str | None, typer.Option(help="Give the one task this payload; - is stdin.")
    ] = None,
) -> int | None:
    """Send dead tasks back: due now, with a full budget.

    Their history is kept. Choose them by ids, by filters, by --group, or --all. All but ids need
    --yes where nobody can be asked, and are the business of a job, which goes on in the sweeps when
    this terminal is closed.
    """
    ask = Asking(screen)
    payload = (
        None
        if payload_file is None
        else base64.b64encode(content(payload_file, "payload_file")).decode()
    )
    request = {
        **filters(ask, error_type, handler, since, until, group),
        "ids": whole_ids(ask, task_ids, queue) or None,
        "all": everything or None,
        "rate": rate,
        "canary": canary,
        "min_success": min_success,
        "canary_wait": canary_wait,
        "reason": reason,
        "force": force or None,
        "unpin": unpin or None,
        "set_version": set_version,
        "set_handler": set_handler,
        "payload_base64": payload,
    }
    return _Bulk(screen, ask, queue, _REDRIVE, request).run(dry_run=dry_run, yes=yes, detach=detach)


def purge(
    screen: Screen,
    *,
    queue: Queue,
    task_ids: Ids = None,
    error_type: Type = None,
    handler: HandlerRef = None,
    since: Since = None,
    until: Until = None,
    group: GroupName = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    reason: Reason = None,
    yes: Yes = False,
    detach: Detach = False,
) -> int | None:
    """Remove dead tasks for good, with their history and payloads.

    Choose them as for a redrive. It asks first; where nobody can be asked it needs --yes.
    """
    ask = Asking(screen)
    request = {
        **filters(ask, error_type, handler, since, until, group),
        "ids": whole_ids(ask, task_ids, queue) or None,
        "all": everything or None,
        "rate": rate,
        "reason": reason,
    }
    return _Bulk(screen, ask, queue, _PURGE, request).run(dry_run=dry_run, yes=yes, detach=detach)


class _Bulk:
    """One redrive or purge, from the question to the end."""

    def __init__(
        self, screen: Screen, ask: Asking, queue: str, words: _Words, request: Mapping[str, Any]
    ) -> None:
        self._screen = screen
        self._ask = ask
        self._queue = queue
        self._words = words
        self._request = request

    def run(self, *, dry_run: bool, yes: bool, detach: bool) -> int | None:
        """Do it. The exit code."""
        by_ids, expected = self._request["ids"] is not None, None
        asks = not yes and (not by_ids or self._words is _PURGE)
        if not by_ids or dry_run or asks:
            would = self._let_settle(self._asked(dry_run=True))
            if dry_run:
                return self._told(would)
            if not would["selected"]:
                self._nothing(would)
                return None
            if asks:
                self._confirm(would)
            expected = None if by_ids else would["selected"]
        done = self._asked(expected=expected)
        if done["job_id"] is None:
            return self._told(done)
        return Following(self._screen, self._ask, f"{self._words.done} {self._queue}").follow(
            done, detach=detach
        )

    def _asked(self, *, dry_run: bool = False, expected: int | None = None) -> Document:
        said = {"dry_run": dry_run or None, "expected": expected}
        try:
            return self._ask(self._words.op, queue=self._queue, **self._request, **said)
        except RdqError as refused:
            if getattr(refused, "field", None) == "selection":
                refused.hint = _OPTIONS
            raise

    def _let_settle(self, would: Document) -> Document:
        """What died in the last five seconds is no job's business. Those seconds are soon over."""
        if not would.get("preview", {}).get("too_young"):
            return would
        self._ask.wait(_SETTLES)
        return self._asked(dry_run=True)

    def _confirm(self, would: Document) -> None:
        """Show what it is about, and ask. Where nobody can be asked it is refused."""
        told = counted(would["selected"], "task")
        question = self._words.question.format(told, self._queue)
        for name, value in _preview_facts(would, self._ask.now()) if can_ask(self._screen) else ():
            note(f"{name:<9}{value}")
        confirmed(self._screen, question)

    def _told(self, done: Document) -> int | None:
        """What a request about named tasks, or a dry run, has come to."""
        if (
            self._request["ids"] is not None
            and len(self._request["ids"]) == 1
            and done.get("refusals")
        ):
            raise refusal(done["refusals"][0])
        self._screen.show(_shape(done), lambda: self._tell(done))
        return ended(done, as_json=not self._screen.is_for_people)

    def _tell(self, done: Document) -> None:
        if not done["selected"]:
            self._nothing_line(done)
        elif done["dry_run"]:
            stay = done["selected"] - done["skipped"]
            self._screen.line(
                f"{counted(stay, 'task')} {self._words.would} {self._queue}; nothing was changed"
            )
            self._screen.fields(_preview_facts(done, self._ask.now()))
            self._screen.next("the same command without --dry-run")
        else:
            self._screen.line(
                f"{counted(done['done'], 'task')} {self._words.done} {self._queue}{left(done)}"
            )
            self._screen.next(f"rdq status {self._queue}")

    def _nothing(self, would: Document) -> None:
        answer = {**_shape(would), "dry_run": False}
        self._screen.show(answer, lambda: self._nothing_line(would))

    def _nothing_line(self, would: Document) -> None:
        young = would.get("preview", {}).get("too_young")
        self._screen.line(f"nothing like that is dead in {self._queue}")
        if young:
            self._screen.line(
                f"{counted(young, 'task')} died in the last five seconds: ask again in a moment"
            )
        self._screen.next(f"rdq dlq list {self._queue}")


def _shape(done: Mapping[str, Any]) -> Document:
    """The fixed shape of what a change has come to."""
    return {
        name: done[name] for name in ("selected", "done", "skipped", "failed", "dry_run", "job_id")
    }


def _preview_facts(would: Mapping[str, Any], now: datetime) -> Sequence[tuple[str, object]]:
    seen = would.get("preview")
    if seen is None:
        return []
    oldest, newest = seen["oldest_dead_at"], seen["newest_dead_at"]
    facts: list[tuple[str, object]] = []
    if oldest:
        facts.append(("dead for", f"{since_then(newest, now)} to {since_then(oldest, now)}"))
    facts += [
        ("payloads", size(seen["payload_bytes"])),
        ("price", f"{seen['write_units']:,} write units, about ${seen['dollars']:.4f}"),
    ]
    if seen["refused"]:
        facts.append(
            ("refused", f"{seen['refused']:,} were redriven too often; --force sends them too")
        )
    if seen["too_young"]:
        facts.append(("too young", f"{seen['too_young']:,} died in the last five seconds"))
    pins = [
        f"{each['handler_ref']} {each['handler_version']} ({each['count']:,})"
        for each in seen["pins"][:5]
    ]
    if pins:
        facts.append(("pinned", ", ".join(pins)))
    if seen["gone"]:
        facts.append(
            ("gone", f"{', '.join(seen['gone'])}: no such version any more; --unpin drops it")
        )
    return facts
