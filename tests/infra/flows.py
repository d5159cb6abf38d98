"""What each role does in ordinary life and in odd cases, on a whole rdq in this process, with its
requests noted.
"""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Final

from rdq_core import Rdq, Registry
from rdq_core.config.document import parse_document
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.job import JobState
from rdq_core.domain.references import Reference, ReferenceKind
from rdq_core.domain.units import parse_duration
from rdq_core.engine.auditor import Principal
from rdq_core.engine.events import Quiet
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import Unavailable
from rdq_core.ops.garbage import collect
from rdq_core.ops.job_control import JobControl
from rdq_core.ops.queue_edits import QueueEditor
from rdq_core.ops.requests import answer
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import connect
from rdq_core.stores.dynamodb.claim_check import UNEXPIRING
from rdq_core.stores.dynamodb.schema import Attr, Tables, create_tables
from rdq_core.stores.dynamodb.tasks import DynamoTaskStore
from rdq_core.testing.clock import FollowsClock, FrozenClock, NoJitter, SkipsSleep
from rdq_core.testing.faults import FaultScript
from tests.dynamodb.verbs import noise
from tests.infra.access import Watch
from tests.support.engines import REGION, Engine

QUEUE: Final = "billing"
QUEUES: Final = """
config_version: 1
queues:
  billing:
    retry: {max_attempts: 2, initial_backoff: 1s, jitter: 0}
    dispatch: {rate_limit: 10/s}
    limits: {task_ttl: 90d, dead_ttl: 60d}
  short: {}
"""
LARGE: Final = 300 * 1024
OUTSIDE: Final = 5_000
ANN: Final = Principal("ann", verified=True)
BUCKET: Final = "rdq-roles"
_numbers = count(1)


class Company:
    """An rdq with a bucket, everybody who works with it, and a watch on what they ask AWS for."""

    def __init__(self, engine: Engine) -> None:
        self.client: Any = engine.dynamodb
        s3 = engine.client("s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        number = next(_numbers)
        self.tables = Tables(
            *(f"rdq-{table}-{number}" for table in ("tasks", "dlq", "control", "audit"))
        )
        create_tables(self.client, self.tables)
        self.clock = FrozenClock()
        parts = connect(self.client, self.tables, clock=self.clock, events=Quiet())
        self.store = DynamoTaskStore(
            self.client,
            self.tables,
            clock=self.clock,
            ids=parts.ids,
            jitter=NoJitter(),
            sleeper=SkipsSleep(self.clock),
            shards_ever=lambda _: 4,
            s3=s3,
            body_bucket=BUCKET,
        )
        idle, busy = SkipsSleep(self.clock), FollowsClock(self.clock)
        self.parts = replace(parts, store=self.store, jitter=NoJitter(), idle=idle, busy=busy)
        self.rdq = Rdq(parts=self.parts)
        self.registry = Registry(queues=[QUEUE, "short"])
        self.registry.register("charge", self._charge)
        self._answer: bytes | None = b"done"
        self.watch = Watch(self.tables)
        for each in (self.client, s3):
            self.watch.on(each)
        QueueEditor(self.parts, self.parts.auditor(ANN)).apply(parse_document(QUEUES))

    def _charge(self, _: bytes) -> bytes:
        if self._answer is None:
            raise TimeoutError("no answer")
        return self._answer

    def submit(self, payload: bytes = b"x", **fields: object) -> str:
        return self.rdq.submit(QUEUE, "charge", payload, **fields).id  # type: ignore[arg-type]

    def sweep(self, answer: bytes | None = b"done", *, horizon: str = "0s") -> None:
        """The sweeper runs what is due; None: the handler fails."""
        self._answer = answer
        self.sweep_with(self.registry, horizon)

    def sweep_with(self, registry: Registry, horizon: str = "0s") -> None:
        """The same with other handlers."""
        span = parse_duration(horizon)
        with self.watch.of("sweeper"):
            sweeper = build_sweeper(
                self.parts, registry, serves=registry.queues, worker="w:1", rdq=self.rdq
            )
            sweeper.sweep(SweepLimits(horizon=span, linger=min(span, parse_duration("2s"))))

    def ask(self, role: str, **document: Any) -> dict[str, Any]:
        """An operator's request, as the ops function and the command line answer it."""
        with self.watch.of(role):
            return answer(document, self.parts, lambda: ANN)

    def as_new_process(self) -> "Company":
        """The same company, seen by a process that remembers nothing."""
        fresh = connect(self.client, self.tables, clock=self.clock, events=Quiet())
        again = copy(self)
        again.parts = replace(
            fresh, store=self.store, jitter=NoJitter(), idle=self.parts.idle, busy=self.parts.busy
        )
        return again

    def a_dead_one(self, payload: bytes = b"x", **fields: object) -> DeadEntry:
        task_id = self.submit(payload, **fields)
        for _ in range(2):
            self.sweep(None)
            self.clock.advance("10s")
        entry = self.store.dead_entry(task_id)
        assert entry is not None
        return entry


def a_submitter_submits(company: Company) -> None:
    with company.watch.of("submitter"):
        for size in (1, OUTSIDE, LARGE):
            company.submit(noise(size), target="order:7", concurrency_key="ann")
        task = {"queue": QUEUE, "handler_ref": "charge", "payload": "x", "target": "order:8"}
        company.rdq.submit_many([task, {**task, "payload": "y" * OUTSIDE}])
        company.rdq.prepare(QUEUE, "charge", noise(OUTSIDE), target="order:9")
        with suppress(Exception):
            company.rdq.submit("nobody-knows", "charge", b"x")


def a_submitter_commits_what_it_prepared(company: Company) -> None:
    with company.watch.of("submitter"):
        prepared = company.rdq.prepare(QUEUE, "charge", b"x", target="order:9")
        company.client.transact_write_items(TransactItems=prepared.items)


def a_guard_keeps_a_failed_call(company: Company) -> None:
    def fails(_: dict[str, str]) -> dict[str, str]:
        raise ConnectionError("no answer")

    guard = company.rdq.guard(
        QUEUE, "charge", on=ConnectionError, max_attempts=2, key=lambda order: order["id"]
    )
    with company.watch.of("submitter"):
        for _ in range(2):
            guard(fails)({"id": "order-7"})


def a_submitter_follows_its_tasks(company: Company) -> None:
    done, dead = company.submit(noise(LARGE)), company.a_dead_one(noise(OUTSIDE)).task_id
    company.sweep(noise(LARGE))
    with company.watch.of("submitter"):
        for task_id in (done, dead):
            company.rdq.result(task_id)
            company.rdq.get(task_id)


def a_submitter_cancels(company: Company) -> None:
    for body in (noise(OUTSIDE), noise(LARGE)):
        task_id = company.submit(body, target="order:7", concurrency_key="ann")
        with company.watch.of("submitter"):
            company.rdq.cancel(task_id)


def a_submitter_is_overtaken_by_a_forget(company: Company) -> None:
    with company.watch.of("operator"):
        company.rdq.forget(target="order:7")
    with company.watch.of("submitter"), suppress(Exception):
        company.submit(noise(LARGE), target="order:7")


def a_sweeper_runs_everything(company: Company) -> None:
    for size in (1, OUTSIDE, LARGE):
        company.submit(noise(size), target="order:7", concurrency_key=f"key-{size}")
    company.sweep(noise(LARGE))
    company.sweep(noise(OUTSIDE))
    company.a_dead_one(noise(LARGE), target="order:7")


def a_sweeper_reclaims(company: Company) -> None:
    task_id = company.submit(concurrency_key="ann")
    company.sweep_with(Registry(queues=[QUEUE]))
    company.clock.advance("2h")
    company.sweep()
    assert company.rdq.get(task_id).attempts


def a_sweeper_meets_a_forgotten_task(company: Company) -> None:
    task_id = company.submit(noise(LARGE), target="order:7")
    company.sweep(None)
    reference = Reference(ReferenceKind.TARGET, "order:7")
    company.store._access.references.put_tombstone(reference, company.clock.advance("5s"))
    company.sweep()
    assert company.store.get(task_id) is None


def a_sweeper_ends_a_deletion(company: Company) -> None:
    with company.watch.of("operator"):
        QueueEditor(company.parts, company.parts.auditor(ANN)).delete(
            "short", reason="nobody needs it"
        )
    company.clock.advance("7m")
    company.sweep(horizon="1m")
    stored = company.parts.queues.stored("short")
    assert stored is not None
    assert stored.is_deleted


def a_sweeper_advances_bulk_operations(company: Company) -> None:
    for op in ("dlq.redrive", "dlq.purge"):
        for size in (OUTSIDE, LARGE):
            company.a_dead_one(noise(size), target="order:7")
        company.clock.advance("1m")
        company.ask(
            "operator", op=op, queue=QUEUE, type="TimeoutError", rate="1/s", reason="they are over"
        )
        for _ in range(6):
            company.sweep(horizon="30s")
            company.clock.advance("30s")
    assert company.store.dead(QUEUE, limit=1).items == []


def a_sweeper_takes_over_what_a_killed_host_began(company: Company) -> None:
    for op in ("dlq.redrive", "dlq.purge"):
        for _ in range(2):
            company.a_dead_one()
        company.clock.advance("1m")
        job = company.ask("operator", op=op, queue=QUEUE, all=True, reason="they are over")[
            "job_id"
        ]
        with FaultScript(company.client) as script, suppress(Unavailable):
            script.reject("AccessDeniedException", "TransactWriteItems")
            company.ask("operator", op="job.advance", job_id=job)
        company.clock.advance("1m")
        company.sweep(horizon="30s")
        assert JobControl(company.parts).get(job).done == 2


def a_sweeper_is_overtaken_by_a_pause(company: Company) -> None:
    company.a_dead_one()
    company.clock.advance("1m")
    job = company.ask("operator", op="dlq.redrive", queue=QUEUE, all=True, reason="they are over")[
        "job_id"
    ]

    def pause() -> None:
        company.ask("operator", op="job.pause", job_id=job)

    with FaultScript(company.client) as script:
        script.interleave(
            pause, "PutItem", where=lambda put: put.params["TableName"] == company.tables.control
        )
        company.sweep(horizon="30s")
    assert JobControl(company.parts).get(job).state is JobState.PAUSED


def what_is_gone_is_cleaned_up(company: Company) -> None:
    task_id = company.submit(noise(LARGE), target="order:7")
    for result in (None, noise(LARGE)):
        company.sweep(result)
        company.clock.advance("10s")
    client, tasks = company.client, company.tables.tasks
    items = client.query(
        TableName=tasks,
        KeyConditionExpression="task_id = :id",
        ExpressionAttributeValues={":id": {"S": task_id}},
    )["Items"]
    for item in sorted(items, key=lambda item: item["kind"]["S"], reverse=True):
        lasting = {
            attr: value
            for attr, value in item.items()
            if attr not in (Attr.BODY_ENDS_AT, Attr.EXPIRES_AT)
        }
        lasting.pop(Attr.REFERENCES_END_AT, None)
        if Attr.S3_KEY in lasting:
            lasting[Attr.S3_KEY] = {"S": f"{UNEXPIRING}/{task_id}/body"}
        client.delete_item(TableName=tasks, Key={"task_id": item["task_id"], "kind": item["kind"]})
        with company.watch.of("clean-up"):
            company.store.clean_up({"dynamodb": {"OldImage": lasting}})


def everybody_asks_for_the_time(company: Company) -> None:
    for role in ("submitter", "sweeper", "operator", "reader", "clean-up", "kick"):
        clock = connect(company.client, company.tables).clock
        with company.watch.of(role):
            clock.now()


def an_operator_mends(company: Company) -> None:
    entries = [
        company.a_dead_one(noise(size), target="order:7") for size in (1, OUTSIDE, LARGE, LARGE)
    ]
    dead = [entry.task_id for entry in entries]
    new = b64encode(noise(LARGE + 1)).decode()
    company.clock.advance("50d")
    company.ask("operator", op="dlq.show", id=dead[0])
    company.ask("operator", op="dlq.redrive", queue=QUEUE, ids=dead[:2], reason="it is mended")
    company.ask(
        "operator",
        op="dlq.redrive",
        queue=QUEUE,
        ids=dead[2:3],
        payload_base64=new,
        reason="it was wrong",
    )
    company.ask("operator", op="dlq.purge", queue=QUEUE, ids=dead[3:], reason="it is over")
    company.ask("operator", op="task.cancel", ids=[dead[0], company.submit(concurrency_key="ann")])
    company.ask("operator", op="task.forget", target="order:7", reason="request 4711")
    with company.watch.of("operator"):
        collect(company.store)


def an_operator_works_in_bulk(company: Company) -> None:
    for _ in range(2):
        company.a_dead_one()
    company.clock.advance("1m")
    page = company.ask("operator", op="dlq.list", queue=QUEUE, page_size=1)
    company.ask("operator", op="dlq.list", queue=QUEUE, page_size=1, cursor=page["next_cursor"])
    job = company.ask("operator", op="dlq.redrive", queue=QUEUE, all=True, reason="it is mended")[
        "job_id"
    ]
    for op in ("job.list", "audit.list"):
        company.ask("operator", op=op)
    company.ask("operator", op="job.get", job_id=job)
    company.ask("operator", op="job.cancel", job_id=job)
    company.clock.advance("1m")
    with company.watch.of("operator"):
        JobControl(company.parts).advance(job)


def an_operator_configures(company: Company) -> None:
    editor = QueueEditor(company.parts, company.parts.auditor(ANN))
    with company.watch.of("operator"):
        editor.set(QUEUE, ["retry.max_attempts=4"], reason="a rush")
        editor.pause(QUEUE, reason="a rush")
        editor.resume(QUEUE)
        editor.clear(QUEUE)
        editor.delete("short", reason="nobody needs it")


def somebody_looks(company: Company) -> None:
    dead = [company.a_dead_one(noise(LARGE)).task_id for _ in range(2)]
    company.clock.advance("1m")
    job = company.ask("operator", op="dlq.redrive", queue=QUEUE, type="Nothing*", reason="none")[
        "job_id"
    ]
    company.ask("operator", op="dlq.list", queue=QUEUE, page_size=1)
    company = company.as_new_process()
    for request in (
        {"op": "status"},
        {"op": "dlq.list", "queue": QUEUE, "page_size": 1},
        {"op": "dlq.groups", "queue": QUEUE},
        {"op": "dlq.show", "id": dead[0]},
        {"op": "task.get", "id": dead[0], "show_payload": True},
        {"op": "task.list", "queue": QUEUE},
        {"op": "job.list"},
        {"op": "job.get", "job_id": job},
        {"op": "queue.list"},
        {"op": "queue.get", "queue": QUEUE},
        {"op": "audit.list"},
    ):
        company.ask("reader", **request)


EVERY: Final[tuple[Callable[[Company], None], ...]] = (
    a_submitter_submits,
    a_submitter_commits_what_it_prepared,
    a_guard_keeps_a_failed_call,
    a_submitter_follows_its_tasks,
    a_submitter_cancels,
    a_submitter_is_overtaken_by_a_forget,
    a_sweeper_runs_everything,
    a_sweeper_reclaims,
    a_sweeper_meets_a_forgotten_task,
    a_sweeper_ends_a_deletion,
    a_sweeper_advances_bulk_operations,
    a_sweeper_takes_over_what_a_killed_host_began,
    a_sweeper_is_overtaken_by_a_pause,
    what_is_gone_is_cleaned_up,
    everybody_asks_for_the_time,
    an_operator_mends,
    an_operator_works_in_bulk,
    an_operator_configures,
    somebody_looks,
)
"""Whatever a role may ever ask for is asked for by one of these, or by those of functions."""
