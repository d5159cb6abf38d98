"""The tour: webhooks fail, are retried, die, are grouped and sent back; then the books are checked.

Every line on the screen comes from a measurement: an event of a worker, an answer of rdq, the
store, or the receiver's log.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rdq_core.cli.connection import OperatorClient, parts
from rdq_core.cli.demo.check import compare
from rdq_core.cli.demo.narrator import Counts, Narrator, cut
from rdq_core.cli.demo.receiver import Receiver
from rdq_core.cli.demo.workers import WorkerProcess
from rdq_core.cli.output import Output, counted
from rdq_core.client.rdq import Rdq
from rdq_core.config.document import parse_document
from rdq_core.domain.attempt import Attempt, Outcome
from rdq_core.engine.events import EventName
from rdq_core.errors import InputInvalid, Unavailable

_QUEUE: Final = "webhooks"
_HANDLER: Final = "deliver-webhook"
_GONE: Final = "endpoint_gone"
_LOOK_EVERY: Final = 0.15
_MAX_PAUSE: Final = 120.0  # without any progress; a slow machine makes some
_MAX_DEATHS: Final = 5  # of workers in a row that report nothing
_MAX_MOMENTS: Final = 9
_MAX_GROUPS: Final = 4
_MAX_PAGE: Final = 500
_TEXT: Final = 50
_CHANGES: Final = ("selected", "done", "skipped", "failed")


class Tour:
    """One run of the demo. `on_event` may be called from any thread."""

    def __init__(self, output: Output, narrator: Narrator, receiver: Receiver) -> None:
        self._client = OperatorClient(output)
        self._narrator = narrator
        self._receiver = receiver
        self._parts = parts()
        self._store = self._parts.store
        self._payloads: dict[str, str] = {}
        self._counts = Counts()
        self._lock = threading.Lock()
        self._began = self._progressed = time.monotonic()
        self._silent_deaths = 0
        self._kinds: set[object] = set()
        self._moments: list[dict[str, Any]] = []

    def configure(self, queues: Path) -> None:
        """Create the queue."""
        document = parse_document(queues.read_bytes())
        config = {"config_version": 1, "queues": dict(document.queues)}
        self._client.request("queue.apply", config=config)

    def run(self, deliveries: Path, workers: Sequence[WorkerProcess]) -> dict[str, Any]:
        """Run the tour and return its document. Raises Unavailable when nothing moves any more."""
        self._submit(deliveries)
        self._settle(workers)
        groups = self._explain()
        self._receiver.repair()
        repaired = [group for group in groups if group["code"] != _GONE]
        preview = self._redrive(repaired, dry_run=True)
        would = f"{counted(preview['selected'], 'task')} would be sent back"
        self._narrator.say(f"the endpoints are repaired; redrive --dry-run: {would}")
        redriven = self._redrive(repaired, dry_run=False)
        tasks = counted(redriven["done"], "task")
        self._narrator.say(f"redrive --group ...: {tasks} sent back, with full retry budgets")
        self._settle(workers)
        document = {
            "seconds": round(time.monotonic() - self._began, 1),
            "moments": self._moments,
            "groups": groups,
            "redrive": {"dry_run": preview, "done": redriven},
        }
        return document | self._check()

    # -- acts --------------------------------------------------------------------------------------

    def _submit(self, deliveries: Path) -> None:
        rdq = Rdq(parts=self._parts)
        for number, line in enumerate(deliveries.read_bytes().splitlines(), start=1):
            try:
                # The event's own id as the key: submitting it twice is submitting it once.
                receipt = rdq.submit(
                    _QUEUE, _HANDLER, line, content_type="application/json", key=_event_id(line)
                )
            except InputInvalid as refused:
                raise InputInvalid(f"deliveries line {number}", refused.message) from None
            self._payloads[receipt.id] = hashlib.sha256(line).hexdigest()
        self._look()
        self._narrator.say(f"  {self._counts}")

    def _explain(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self._client.request("dlq.groups", queue=_QUEUE)["items"]
        dead = sum(group["count"] for group in groups)
        self._narrator.say(f"dead: {counted(dead, 'task')} in {counted(len(groups), 'group')}")
        for group in groups[:_MAX_GROUPS]:
            error = f"{group['code']}: {group['message'] or group['type']}"
            self._narrator.say(f"  {group['fingerprint']}  {group['count']:>2} x {error}")
        return groups

    def _redrive(self, groups: Iterable[Mapping[str, Any]], *, dry_run: bool) -> dict[str, Any]:
        total: dict[str, Any] = dict.fromkeys(_CHANGES, 0)
        for group in groups:
            page = self._client.request(
                "dlq.list", queue=_QUEUE, group=group["fingerprint"], page_size=_MAX_PAGE
            )
            ids = [entry["id"] for entry in page["items"]]
            answer = self._client.request("dlq.redrive", queue=_QUEUE, ids=ids, dry_run=dry_run)
            total = {name: total[name] + answer[name] for name in _CHANGES}
        return {**total, "dry_run": dry_run, "job_id": None}

    def _check(self) -> dict[str, Any]:
        """Read every task back and compare it with the receiver's log."""
        log = self._receiver.log
        tasks = {task_id: self._store.get(task_id) for task_id in self._payloads}
        result = compare(self._payloads, tasks, log)
        missing = sum(task is None for task in tasks.values())
        each = "not each" if result.disagreements else "each"
        unsent = f", {result.unsent} unsent" if result.unsent else ""
        self._narrator.say(
            f"store:    {result.submitted} submitted, {len(tasks) - missing} read back:"
            f" {result.succeeded} succeeded, {result.dead} dead, {missing} lost"
        )
        self._narrator.say(
            f"receiver: {result.requests} requests, {each} a recorded attempt;"
            f" {counted(result.lapsed, 'lease')} expired{unsent}"
        )
        for problem in result.disagreements[:3]:
            self._narrator.say(f"  MISMATCH: {problem}")
        return {
            "ok": not result.disagreements,
            "summary": result.summary(),
            "disagreements": list(result.disagreements),
            "tasks": [
                {
                    "id": task_id,
                    "status": None if task is None else str(task.status),
                    "attempts": 0 if task is None else len(task.attempts),
                    "requests": sum(request.task_id == task_id for request in log),
                }
                for task_id, task in tasks.items()
            ],
        }

    # -- waiting -----------------------------------------------------------------------------------

    def _settle(self, workers: Sequence[WorkerProcess]) -> None:
        """Wait until every task has succeeded or is dead, in two readings in a row.

        One reading is not enough: a task that moves between two states may be counted in neither.
        """
        readings = 0
        while readings < 2:  # noqa: PLR2004 - see above
            for worker in workers:
                if (exit_code := worker.restart_if_dead()) is not None:
                    self._on_death(worker, exit_code)
            self._look()
            is_settled = self._counts.pending + self._counts.in_flight == 0
            readings = readings + 1 if is_settled else 0
            if time.monotonic() > self._progressed + _MAX_PAUSE:
                raise Unavailable(f"the demo's tasks made no progress: {self._counts}")
            time.sleep(_LOOK_EVERY)
        self._narrator.say(f"  {self._counts}")

    def _look(self) -> None:
        stored = self._store.counts(_QUEUE)
        succeeded = len(self._payloads) - stored.pending - stored.in_flight - stored.dead
        counts = Counts(stored.pending, stored.in_flight, max(succeeded, 0), stored.dead)
        if counts != self._counts:
            self._counts, self._progressed = counts, time.monotonic()
        self._narrator.show(counts)

    # -- moments: the first event of each kind -----------------------------------------------------

    def on_event(self, worker: int, event: Mapping[str, Any]) -> None:
        """Narrate an event of a worker's log, if it is the first of its kind."""
        with self._lock:
            self._progressed, self._silent_deaths = time.monotonic(), 0
            attempt_no = event.get("attempt_no") or 0
            match event.get("event"):
                case EventName.CLAIMED if attempt_no > 1:
                    self._on_claim(worker, event)
                case EventName.SUCCEEDED if attempt_no > 1:
                    self._add("late success", f"delivered at attempt {attempt_no}", event)
                case EventName.RETRY_SCHEDULED:
                    self._on_failure(event, f"; retry in {event['delay_ms'] / 1000:.1f} s")
                case EventName.DEAD_LETTERED:
                    when = "at once" if attempt_no == 1 else f"after {attempt_no} attempts"
                    self._on_failure(event, f"; dead {when}")

    def _on_claim(self, worker: int, event: Mapping[str, Any]) -> None:
        number = event["attempt_no"]
        before = None if "lease" in self._kinds else self._attempt(event["task_id"], number - 1)
        if before is not None and before.outcome is Outcome.LEASE_EXPIRED:
            text = f"lease expired: worker {worker} starts attempt {number}"
            self._add("lease", text, {**event, "rule": "lease"}, always=True)

    def _on_failure(self, event: Mapping[str, Any], effect: str) -> None:
        """Add the recorded error of a failed attempt and its effect, cut to fit a line."""
        kind = tuple(event.get(name) for name in ("event", "rule", "code", "error_type"))
        if kind not in self._kinds:
            attempt = self._attempt(event["task_id"], event["attempt_no"])
            error = None if attempt is None else attempt.error
            cause = "" if error is None else error.message or error.type
            self._add(kind, f"{cut(cause, _TEXT - len(effect))}{effect}", event)

    def _on_death(self, worker: WorkerProcess, exit_code: int) -> None:
        with self._lock:
            self._progressed = time.monotonic()
            self._silent_deaths += 1
            text = f"worker {worker.number} died (exit {exit_code}); restarted"
            self._add("death", text, {}, always=True)
        if self._silent_deaths > _MAX_DEATHS:
            lines = " | ".join(worker.last_lines)
            raise Unavailable(f"the demo's workers keep dying: {lines}")

    def _add(
        self, kind: object, text: str, event: Mapping[str, Any], *, always: bool = False
    ) -> None:
        """Record a moment, if it is the first of its kind, and print it if there is room."""
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        seconds, rule = round(time.monotonic() - self._began, 2), event.get("rule")
        moment = {"seconds": seconds, "text": text, "rule": rule, "task_id": event.get("task_id")}
        self._moments.append(moment)
        if always or len(self._moments) <= _MAX_MOMENTS:
            self._narrator.say(f"  {seconds:>4.1f}s  {text:<{_TEXT}} {rule or ''}".rstrip())

    def _attempt(self, task_id: str, attempt_no: int) -> Attempt | None:
        task = self._store.get(task_id)
        attempts = () if task is None else task.attempts
        return next((each for each in attempts if each.attempt_no == attempt_no), None)


def _event_id(line: bytes) -> str | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    event_id = event.get("id") if isinstance(event, dict) else None
    return event_id if isinstance(event_id, str) and event_id else None
