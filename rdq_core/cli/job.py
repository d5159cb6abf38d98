"""`rdq job`: list, show, watch, resume and cancel bulk operations."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command, examples
from rdq_core.cli.connection import OperatorClient
from rdq_core.cli.failures import remainder
from rdq_core.cli.ids import resolve_job_id, shorten
from rdq_core.cli.job_follow import JobFollower
from rdq_core.cli.options import Detach, JobId, Reason
from rdq_core.cli.output import Output, ago, counted
from rdq_core.domain.times import parse_time

app: Final = typer.Typer(help="Bulk operations: redrives and purges.", no_args_is_help=True)

_NOT_ENDED: Final = ("open", "paused")


@command(app, "list", asks=True, epilog=examples("rdq job list"))
def list_jobs(
    output: Output,
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Jobs to list at most.")] = 20,
) -> None:
    """List bulk operations: open ones first, then ended ones, newest first."""
    client = OperatorClient(output)
    jobs = client.request("job.list", limit=limit)
    output.show(jobs, lambda: _print_jobs(output, client, jobs["items"]))


def _print_jobs(output: Output, client: OperatorClient, jobs: list[Mapping[str, Any]]) -> None:
    if not jobs:
        output.line("there are no jobs")
        output.next("rdq dlq groups")
        return
    now, short = client.now(), shorten(each["job_id"] for each in jobs)
    output.table(
        ["job", "age", "operation", "state", "done", "queue"],
        [
            (
                short[each["job_id"]],
                ago(parse_time(each["created_at"], "time"), now),
                each["operation"].removeprefix("dlq."),
                each["state"],
                _progress(each),
                each["queue"],
            )
            for each in jobs
        ],
        stretch=5,
    )
    first = jobs[0]
    output.next(_next_step(first) or f"rdq job get {first['job_id']}")


def _next_step(job: Mapping[str, Any]) -> str | None:
    """The command for a job that has not ended."""
    verb = {"open": "watch", "paused": "resume"}.get(job["state"])
    return verb and f"rdq job {verb} {job['job_id']}"


def _progress(job: Mapping[str, Any]) -> str:
    expected = job["expected"]
    if expected is None or job["state"] not in _NOT_ENDED:
        return f"{job['done']:,}"
    return f"{job['done']:,}/{expected:,}"


@command(app, "get", asks=True)
def get(output: Output, *, job_id: JobId) -> None:
    """Show a bulk operation."""
    client = OperatorClient(output)
    job = client.request("job.get", job_id=resolve_job_id(client, job_id))
    output.show(job, lambda: _print_job(output, job))


def _print_job(output: Output, job: Mapping[str, Any]) -> None:
    operation = job["operation"].removeprefix("dlq.")
    output.line(f"{job['job_id']}  {operation} of {job['queue']}: {job['state']}")
    order = dict(job["order"])
    selection = ", ".join(f"{name} {value}" for name, value in order["select"].items())
    output.fields(
        [
            ("selection", "all" if selection == "all True" else selection),
            ("rate", order["rate"]),
            ("canary", _canary(order.get("canary"))),
            ("by", f"{job['principal']}{'' if job['verified'] else ' (not verified)'}"),
            ("reason", job["reason"]),
            ("started", output.moment(job["created_at"])),
            ("ended", output.moment(job["ended_at"])),
            ("done", f"{_progress(job)}{remainder(job)}"),
            ("note", job["note"]),
        ]
    )
    output.next(_next_step(job) or f"rdq dlq list {job['queue']}")


def _canary(canary: Mapping[str, Any] | None) -> str | None:
    if not canary:
        return None
    return (
        f"{canary['first']} first; {canary['min_success']:.0%} must succeed within {canary['wait']}"
    )


@command(app, "watch", asks=True)
def watch(output: Output, *, job_id: JobId) -> int | None:
    """Watch a job until it ends. Ctrl-C stops watching; the job goes on."""
    client = OperatorClient(output)
    job = client.request("job.get", job_id=resolve_job_id(client, job_id))
    return JobFollower(output, client, "done").watch(job)


@command(app, "resume", asks=True, epilog=examples("rdq job resume 01M8PXSZ8GHTD2249VSD1FERQ2"))
def resume(output: Output, *, job_id: JobId, detach: Detach = False) -> int | None:
    """Continue a job from here, even one that runs elsewhere. Nothing is done twice."""
    client = OperatorClient(output)
    job = client.request("job.resume", job_id=resolve_job_id(client, job_id))
    follower = JobFollower(output, client, "done")
    if detach:
        follower.detach(job["job_id"])
        return None
    return follower.run(job["job_id"], take_over=True)


@command(app, "cancel", asks=True)
def cancel(output: Output, *, job_id: JobId, reason: Reason = None) -> None:
    """Cancel a job. Tasks it has not reached stay unchanged."""
    client = OperatorClient(output)
    job = client.request("job.cancel", job_id=resolve_job_id(client, job_id), reason=reason)
    output.show(job, lambda: _print_cancelled(output, job))


def _print_cancelled(output: Output, job: Mapping[str, Any]) -> None:
    operation = job["operation"].removeprefix("dlq.")
    output.line(f"the {operation} is cancelled after {counted(job['done'], 'task')}")
    output.next(f"rdq dlq list {job['queue']}")
