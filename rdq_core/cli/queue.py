"""`rdq queue`: show queues and change their settings, pause, resume and delete them.

The commands that work on configuration files are in queue_apply.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.failures import UsageError
from rdq_core.cli.options import QueueName, Reason, Yes, can_confirm
from rdq_core.cli.output import Output, exact, note, span
from rdq_core.config.merge import leaves

app: Final = typer.Typer(
    help="Queues: their settings and how many tasks they hold.", no_args_is_help=True
)

_NOT_SETTINGS: Final = frozenset(
    {"queue", "revision", "paused", "shards_ever", "deleting", "override_suspended"}
)

# -- show ------------------------------------------------------------------------------------------


@command(app, "get", asks=True)
def get(output: Output, *, queue: QueueName) -> None:
    """Show the settings of a queue and where each one was set."""
    layers = OperatorClient(output).request("queue.get", queue=queue)
    output.show(layers, lambda: _print_queue(output, queue, layers))


def _print_queue(output: Output, queue: str, layers: Mapping[str, Any]) -> None:
    override = layers["override"] or {}
    declared = leaves(layers["declared"])
    overridden = leaves(override["layer"]) if override.get("in_force") else {}
    rows = [
        (
            key,
            setting_text(value),
            "override" if key in overridden else "declared" if key in declared else "",
        )
        for key, value in leaves(layers["effective"]).items()
        if key not in _NOT_SETTINGS and value not in ([], {})
    ]
    output.line(f"{queue}, revision {layers['revision']}{_states(layers)}")
    output.fields(_operator_changes(output, layers, override))
    output.line()
    output.table(["setting", "value", "set by"], rows, stretch=1)
    output.next(f"rdq queue stats {queue}", f"rdq queue ladder {queue}")


def _states(layers: Mapping[str, Any]) -> str:
    states = {"PAUSED": layers["paused"], "DELETING": layers["deleting_at"]}
    return "".join(f", {word}" for word, holds in states.items() if holds)


def _operator_changes(
    output: Output, layers: Mapping[str, Any], override: Mapping[str, Any]
) -> list[tuple[str, object]]:
    """What a deploy does not undo: the pause and the override, with their reasons."""
    fields: list[tuple[str, object]] = []
    if layers["paused"]:
        since = output.moment(layers["paused_at"])
        fields.append(("paused", f"since {since}{_because(layers['pause_reason'])}"))
    if override:
        state = _override_state(output, override)
        fields.append(("override", f"{state}{_because(override['reason'])}"))
    return fields


def _override_state(output: Output, override: Mapping[str, Any]) -> str:
    """Whether an override is in effect, and until when."""
    expires_at = output.moment(override["expires_at"])
    if override["suspended"]:
        return "SUSPENDED: it contradicts the declared settings"
    if not override["in_force"]:
        return f"expired {expires_at}"
    return f"until {expires_at}" if expires_at else "until it is cleared"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def setting_text(value: object) -> str | None:
    """The value of a setting, for people; None stays None."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


@command(app, "list", asks=True)
def list_queues(output: Output) -> None:
    """List the queues."""
    queues = OperatorClient(output).request("queue.list")
    output.show(queues, lambda: _print_queues(output, queues["items"]))


def _print_queues(output: Output, queues: Sequence[Mapping[str, Any]]) -> None:
    if not queues:
        print_no_queues(output)
        return
    names = ("queue", "owner", "max_attempts", "host", "revision")
    output.table(
        ["queue", "owner", "attempts", "host", "revision", ""],
        [(*(each[name] for name in names), _marks(each)) for each in queues],
        stretch=0,
    )
    output.next(f"rdq queue stats {queues[0]['queue']}")


def print_no_queues(output: Output) -> None:
    """Print that no queue is configured, and how to configure one."""
    output.line("no queue is configured")
    output.next("rdq queue apply queues.yaml")


def _marks(queue: Mapping[str, Any]) -> str:
    marks = {
        "PAUSED": queue["paused"],
        "DELETING": queue["deleting"],
        "override": queue["override"] == "in_force",
        "override SUSPENDED": queue["override"] == "suspended",
    }
    return ", ".join(word for word, holds in marks.items() if holds)


@command(app, "ladder", asks=True)
def ladder(output: Output, *, queue: QueueName) -> None:
    """Show when a task that always fails is tried, and when it dies."""
    steps = OperatorClient(output).request("queue.ladder", queue=queue)
    output.show(steps, lambda: _print_ladder(output, queue, steps))


def _print_ladder(output: Output, queue: str, steps: Mapping[str, Any]) -> None:
    names = ("earliest", "middle", "latest")
    output.table(
        ["attempt", *names],
        [
            (each["attempt"], *(exact(each[f"{name}_ms"]) for name in names))
            for each in steps["attempts"]
        ],
    )
    dies = steps["dies"]
    earliest, latest = exact(dies["earliest_ms"]), exact(dies["latest_ms"])
    output.line()
    output.line(f"A task that always fails is dead {earliest} to {latest} after its submit;")
    output.line(f"if every attempt times out, {exact(dies['at_worst_ms'])} after it at the latest.")
    output.next(f"rdq queue get {queue}")


@command(app, "stats", asks=True)
def stats(output: Output, *, queue: QueueName) -> None:
    """Count the pending, in-flight and dead tasks of a queue."""
    counts = OperatorClient(output).request("queue.stats", queue=queue)
    output.show(counts, lambda: _print_stats(output, queue, counts))


def _print_stats(output: Output, queue: str, counts: Mapping[str, Any]) -> None:
    age, more = counts["oldest_pending_age_seconds"], "" if counts["exact"] else " or more"
    output.line(f"{queue}{', PAUSED' if counts['paused'] else ''}")
    output.fields(
        [
            *((name, f"{count}{more}") for name, count in _counts(counts)),
            ("oldest due for", None if age is None else span(age)),
        ]
    )
    output.next(f"rdq dlq groups {queue}" if counts["dead"] else f"rdq queue get {queue}")


def _counts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, f"{document[name.replace(' ', '_')]:,}") for name in ("pending", "in flight", "dead")
    ]


# -- change ----------------------------------------------------------------------------------------


@command(app, "set", asks=True)
def set_(
    output: Output,
    *,
    queue: QueueName,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Settings; KEY= removes one again."),
    ] = None,
    reason: Reason = None,
    lasts: Annotated[
        str | None, typer.Option("--for", help="When the override ends: after 2h, or never.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the whole override.")] = False,
) -> None:
    """Override declared settings, for a while or until cleared. Deploys don't undo it.

    A queue has one override, with one reason and one end. Settings already in it stay, and so
    does its end unless --for is given.
    """
    _check_set(assignments, reason, lasts, clear=clear)
    result = OperatorClient(output).request(
        "queue.set",
        queue=queue,
        set=assignments or None,
        clear=clear or None,
        lasts=lasts,
        reason=reason,
    )
    output.show(result, lambda: _print_set(output, queue, result))


def _check_set(
    assignments: list[str] | None, reason: str | None, lasts: str | None, *, clear: bool
) -> None:
    if clear and (assignments or lasts):
        raise UsageError("--clear removes the whole override: give it without KEY=VALUE and --for")
    if not clear and not assignments:
        raise UsageError("there is nothing to set: give KEY=VALUE, or --clear")
    if not clear and not reason:
        raise UsageError("the reason is missing: give --reason TEXT")


def _print_set(output: Output, queue: str, result: Mapping[str, Any]) -> None:
    override = result["override"]
    state = "no override" if override is None else f"set {_override_state(output, override)}"
    output.line(f"{queue}: {state}{'' if result['changed'] else ' (unchanged)'}")
    if result["changes"]:
        output.line()
        rows = [
            (each["key"], setting_text(each["before"]), setting_text(each["after"]))
            for each in result["changes"]
        ]
        output.table(["setting", "before", "now"], rows, stretch=2)
    clear = [] if override is None else [f"rdq queue set {queue} --clear"]
    output.next(f"rdq queue get {queue}", *clear)


@command(app, "pause", asks=True)
def pause(output: Output, *, queue: QueueName, reason: Reason = None) -> None:
    """Stop starting tasks of a queue. Submits and cancels still work."""
    result = OperatorClient(output).request("queue.pause", queue=queue, reason=reason)
    output.show(result, lambda: _print_paused(output, queue, result))


def _print_paused(output: Output, queue: str, result: Mapping[str, Any]) -> None:
    state = "is paused" if result["changed"] else "was paused already"
    output.line(f"{queue} {state}: no task is started, submits still work")
    output.next(f"rdq queue resume {queue}")


@command(app, "resume", asks=True)
def resume(output: Output, *, queue: QueueName) -> None:
    """Start tasks of a paused queue again."""
    result = OperatorClient(output).request("queue.resume", queue=queue)
    output.show(result, lambda: _print_resumed(output, queue, result))


def _print_resumed(output: Output, queue: str, result: Mapping[str, Any]) -> None:
    output.line(f"{queue} {'is resumed' if result['changed'] else 'was not paused'}")
    output.next(f"rdq queue stats {queue}")


@command(app, "delete", asks=True)
def delete(output: Output, *, queue: QueueName, reason: Reason = None, yes: Yes = False) -> None:
    """Delete a queue, in two steps.

    First it refuses new tasks. Once it has none left, and six minutes have passed, it is
    deleted: by a sweep, or by this command when run again.
    """
    client = OperatorClient(output)
    if not yes and can_confirm(output):
        for name, count in _counts(client.request("queue.stats", queue=queue)):
            note(f"{name:<9}  {count}")
        typer.confirm(f"refuse all submits to {queue} from now on?", abort=True, err=True)
    result = client.request("queue.delete", queue=queue, reason=reason)
    output.show(result, lambda: _print_deletion(output, queue, result))


def _print_deletion(output: Output, queue: str, result: Mapping[str, Any]) -> None:
    if result["state"] == "deleted":
        output.line(f"{queue} is deleted")
        output.next("rdq queue list")
        return
    output.line(f"{queue} refuses new tasks; it is deleted when it has none left")
    output.fields([*_counts(result), ("not before", output.moment(result["deletable_at"]))])
    if result["paused"]:
        output.line("It is paused: its pending tasks run only after rdq queue resume.")
    look = [f"rdq dlq groups {queue}"] if result["dead"] else []
    output.next(*look, f"rdq queue delete {queue}")
