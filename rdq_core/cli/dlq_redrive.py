"""`rdq dlq redrive` and `purge`: change dead tasks, after a preview and a confirmation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import Document, OperatorClient
from rdq_core.cli.dlq import time_since
from rdq_core.cli.failures import print_refusals, refusal, remainder
from rdq_core.cli.ids import resolve_ids
from rdq_core.cli.job_follow import JobFollower
from rdq_core.cli.options import (
    BulkOptions,
    DeadFilters,
    DeadQueue,
    TaskIds,
    can_confirm,
    confirm,
    read_base64,
)
from rdq_core.cli.output import Output, counted, note, size
from rdq_core.errors import RdqError

_SETTLES: Final = 5.0
_REDRIVE_EXAMPLES: Final = examples(
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --dry-run",
    "rdq dlq redrive billing --group v1:3f2a90c1d0ab --canary 10",
    "rdq dlq redrive billing --since 3h --rate 20/s --reason 'fix 17 is out'",
    "rdq dlq redrive billing --all --yes --detach  the sweeps do it",
    "rdq dlq redrive billing ID --payload-file better.json",
)
_PURGE_EXAMPLES: Final = examples(
    "rdq dlq purge billing --type '*.Duplicate' --dry-run",
    "rdq dlq purge billing --until 2026-07-01T00:00:00Z --reason 'too old to matter'",
)
_HOW_TO_SELECT: Final = "give ids, --group, --all or filters: --type --handler --since --until"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "redrive", asks=True, epilog=_REDRIVE_EXAMPLES)(redrive)
    command(app, "purge", asks=True, epilog=_PURGE_EXAMPLES)(purge)


@dataclass(frozen=True, slots=True)
class _Operation:
    """A request and the words for it."""

    op: str
    would: str
    done: str
    question: str


_REDRIVE: Final = _Operation(
    "dlq.redrive", "would be sent back to", "sent back to", "send {} back to {}?"
)
_PURGE: Final = _Operation(
    "dlq.purge", "would be removed from", "removed from", "remove {} from {} for good?"
)


def redrive(
    output: Output,
    *,
    queue: DeadQueue,
    task_ids: TaskIds = None,
    filters: DeadFilters,
    options: BulkOptions,
    canary: Annotated[
        int | None, typer.Option(help="Send this many first; stop if they fail.")
    ] = None,
    min_success: Annotated[
        float | None, typer.Option(help="Share of them to succeed. [default: 0.9]")
    ] = None,
    canary_wait: Annotated[
        str | None, typer.Option(help="How long to watch the canary. [default: 5m]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also those redriven max_redrives times.")
    ] = False,
    unpin: Annotated[
        bool, typer.Option("--unpin", help="Unpin them from their handler version.")
    ] = False,
    set_version: Annotated[
        str | None, typer.Option(help="Pin them to this handler version.")
    ] = None,
    set_handler: Annotated[str | None, typer.Option(help="Change their handler ref.")] = None,
    payload_file: Annotated[
        str | None, typer.Option(help="A new payload for the one task; - is stdin.")
    ] = None,
) -> int | None:
    """Send dead tasks back: due now, with a full retry budget.

    They keep their history. Select them by ids, filters, --group or --all. Except for ids, this
    asks first; without a terminal it needs --yes. It runs as a job, which the sweeps finish if
    this terminal is closed.
    """
    client = OperatorClient(output)
    request = {
        **filters.as_request(client.now),
        "ids": resolve_ids(client, task_ids, queue) or None,
        "all": options.everything or None,
        "rate": options.rate,
        "canary": canary,
        "min_success": min_success,
        "canary_wait": canary_wait,
        "reason": options.reason,
        "force": force or None,
        "unpin": unpin or None,
        "set_version": set_version,
        "set_handler": set_handler,
        "payload_base64": read_base64(payload_file, "payload_file"),
    }
    return _Bulk(output, client, queue, _REDRIVE, request).run(options)


def purge(
    output: Output,
    *,
    queue: DeadQueue,
    task_ids: TaskIds = None,
    filters: DeadFilters,
    options: BulkOptions,
) -> int | None:
    """Remove dead tasks for good, with their history and payloads.

    Select them as for a redrive. This asks first; without a terminal it needs --yes.
    """
    client = OperatorClient(output)
    request = {
        **filters.as_request(client.now),
        "ids": resolve_ids(client, task_ids, queue) or None,
        "all": options.everything or None,
        "rate": options.rate,
        "reason": options.reason,
    }
    return _Bulk(output, client, queue, _PURGE, request).run(options)


class _Bulk:
    """One redrive or purge, from the preview to the report."""

    def __init__(
        self,
        output: Output,
        client: OperatorClient,
        queue: str,
        operation: _Operation,
        request: Mapping[str, Any],
    ) -> None:
        self._output = output
        self._client = client
        self._queue = queue
        self._operation = operation
        self._request = request

    def run(self, options: BulkOptions) -> int | None:
        """Preview, confirm and do it. Returns the exit code."""
        by_ids, expected = self._request["ids"] is not None, None
        asks = not options.yes and (not by_ids or self._operation is _PURGE)
        if not by_ids or options.dry_run or asks:
            preview = self._preview()
            if options.dry_run:
                return self._report(preview)
            if not preview["selected"]:
                self._report_nothing(preview)
                return None
            if asks:
                self._confirm(preview)
            expected = None if by_ids else preview["selected"]
        result = self._send(expected=expected)
        if result["job_id"] is None:
            return self._report(result)
        follower = JobFollower(self._output, self._client, f"{self._operation.done} {self._queue}")
        if options.detach:
            follower.detach(result["job_id"])
            return None
        return follower.run(result["job_id"])

    def _send(self, *, dry_run: bool = False, expected: int | None = None) -> Document:
        try:
            return self._client.request(
                self._operation.op,
                queue=self._queue,
                **self._request,
                dry_run=dry_run or None,
                expected=expected,
            )
        except RdqError as refused:
            if getattr(refused, "field", None) == "selection":
                refused.hint = _HOW_TO_SELECT
            raise

    def _preview(self) -> Document:
        """The answer to a dry run.

        A job skips tasks that died in the last five seconds, so wait until they are old enough.
        """
        preview = self._send(dry_run=True)
        if not preview.get("preview", {}).get("too_young"):
            return preview
        self._client.wait(_SETTLES)
        return self._send(dry_run=True)

    def _confirm(self, preview: Document) -> None:
        if can_confirm(self._output):
            for name, value in _preview_fields(preview, self._client.now()):
                note(f"{name:<9}{value}")
        tasks = counted(preview["selected"], "task")
        confirm(self._output, self._operation.question.format(tasks, self._queue))

    def _report(self, result: Document) -> int | None:
        """Print the result of a dry run or of a change to tasks given by id."""
        ids, refusals = self._request["ids"], result.get("refusals")
        if ids is not None and len(ids) == 1 and refusals:
            raise refusal(refusals[0])
        self._output.show(_summary(result), lambda: self._print(result))
        return print_refusals(result, as_json=not self._output.is_for_people)

    def _print(self, result: Document) -> None:
        words = self._operation
        if not result["selected"]:
            self._print_nothing(result)
        elif result["dry_run"]:
            tasks = counted(result["selected"] - result["skipped"], "task")
            self._output.line(f"{tasks} {words.would} {self._queue}; nothing was changed")
            self._output.fields(_preview_fields(result, self._client.now()))
            self._output.next("the same command without --dry-run")
        else:
            tasks = counted(result["done"], "task")
            self._output.line(f"{tasks} {words.done} {self._queue}{remainder(result)}")
            self._output.next(f"rdq status {self._queue}")

    def _report_nothing(self, preview: Document) -> None:
        summary = {**_summary(preview), "dry_run": False}
        self._output.show(summary, lambda: self._print_nothing(preview))

    def _print_nothing(self, preview: Document) -> None:
        too_young = preview.get("preview", {}).get("too_young")
        self._output.line(f"no matching dead tasks in {self._queue}")
        if too_young:
            tasks = counted(too_young, "task")
            self._output.line(f"{tasks} died in the last five seconds: try again in a moment")
        self._output.next(f"rdq dlq list {self._queue}")


def _summary(result: Mapping[str, Any]) -> Document:
    """The JSON answer: the same keys for every change of tasks."""
    names = ("selected", "done", "skipped", "failed", "dry_run", "job_id")
    return {name: result[name] for name in names}


def _preview_fields(result: Mapping[str, Any], now: datetime) -> Sequence[tuple[str, object]]:
    preview = result.get("preview")
    if preview is None:
        return []
    oldest, newest = preview["oldest_dead_at"], preview["newest_dead_at"]
    fields: list[tuple[str, object]] = []
    if oldest:
        fields.append(("dead for", f"{time_since(newest, now)} to {time_since(oldest, now)}"))
    fields += [
        ("payloads", size(preview["payload_bytes"])),
        ("cost", f"{preview['write_units']:,} write units, about ${preview['dollars']:.4f}"),
    ]
    if preview["refused"]:
        fields.append(
            ("refused", f"{preview['refused']:,} redriven too often; --force includes them")
        )
    if preview["too_young"]:
        fields.append(("too young", f"{preview['too_young']:,} died in the last five seconds"))
    pins = [
        f"{each['handler_ref']} {each['handler_version']} ({each['count']:,})"
        for each in preview["pins"][:5]
    ]
    if pins:
        fields.append(("pinned", ", ".join(pins)))
    if preview["gone"]:
        versions = ", ".join(preview["gone"])
        fields.append(("gone", f"{versions}: versions that no longer exist; --unpin removes them"))
    return fields
