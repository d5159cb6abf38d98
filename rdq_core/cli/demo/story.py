"""The demo's plot: calls fail, are retried, die, are understood and sent back; then both sides'
books are compared.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rdq_core.cli.demo.moments import Moments
from rdq_core.cli.demo.stage import HANDLER, QUEUE, Stage
from rdq_core.cli.demo.teller import State, Teller
from rdq_core.cli.demo.verdict import Verdict, judge
from rdq_core.cli.screen import counted
from rdq_core.domain.dead import DeadEntry
from rdq_core.engine.submit import Draft
from rdq_core.errors import InputInvalid, Unavailable
from rdq_core.ops.dead_letter_edits import DeadLetterEditor
from rdq_core.ops.dead_letters import DeadLetters, Group, entries_of
from rdq_core.ops.lines import payload_lines
from rdq_core.ops.mutation import Mutation
from rdq_core.ops.submitting import BulkSubmitter, Line
from rdq_core.ops.views import group_view, mutation_view
from rdq_core.runtime.principal import claimed

_LOOK_EVERY: Final = 0.15
_SETTLES_WITHIN: Final = 60.0
_MOST_GROUPS: Final = 4
_GONE: Final = "endpoint_gone"
_MOST_DEATHS: Final = 10


@dataclass(slots=True)
class Facts:
    """What happened, for the document at the end."""

    payloads: dict[str, str] = field(default_factory=dict)
    groups: Sequence[Group] = ()
    dry_run: Mutation = field(default_factory=lambda: Mutation(dry_run=True))
    redriven: Mutation = field(default_factory=Mutation)
    state: State = field(default_factory=lambda: State(0, 0, 0, 0))
    verdict: Verdict | None = None
    tasks: list[dict[str, Any]] = field(default_factory=list)


class Story:
    """One performance on a stage."""

    def __init__(self, stage: Stage, moments: Moments, teller: Teller) -> None:
        self._stage = stage
        self._moments = moments
        self._teller = teller
        self._parts = stage.parts
        self.facts = Facts()
        self._deaths = 0

    def play(self, deliveries: Path) -> Facts:
        """From the first submit to the verdict. Raises Unavailable when the tasks don't settle."""
        self._submit(deliveries)
        self._settle()
        self._understand()
        self._send_back()
        self._settle()
        self._compare()
        return self.facts

    # -- acts --------------------------------------------------------------------------------------

    def _submit(self, deliveries: Path) -> None:
        with deliveries.open("rb") as stream:
            lines = list(
                _keyed(
                    payload_lines(
                        stream,
                        Draft(
                            queue=QUEUE,
                            handler_ref=HANDLER,
                            payload=b"",
                            options={"content_type": "application/json"},
                        ),
                    )
                )
            )
        report = BulkSubmitter(self._parts.submitter()).submit(lines)
        if report.rejected:
            first = report.rejected[0]
            raise InputInvalid(f"deliveries line {first.line}", first.message)
        by_line = {
            line.number: line.draft.payload for line in lines if isinstance(line.draft, Draft)
        }
        for each in report.submitted:
            self.facts.payloads[each.id] = hashlib.sha256(by_line[each.line]).hexdigest()
        self._look(mark=True)

    def _understand(self) -> None:
        self.facts.groups = DeadLetters(self._parts).groups(QUEUE)
        dead = sum(group.count for group in self.facts.groups)
        self._teller.say(
            f"dead: {counted(dead, 'task')} in {counted(len(self.facts.groups), 'group')}"
        )
        for group in self.facts.groups[:_MOST_GROUPS]:
            example = group.example
            self._teller.say(
                f"  {group.fingerprint}  {group.count:>2} x {example.code}: {example.message or example.type}"
            )

    def _send_back(self) -> None:
        """What the receiver's people could repair goes back; what is gone for good stays in the
        DLQ.
        """
        self._stage.receiver.mend()
        chosen = [group for group in self.facts.groups if group.example.code != _GONE]
        self.facts.dry_run = self._redrive(chosen, dry_run=True)
        self._teller.say(
            f"the endpoints are mended; redrive --dry-run: {self.facts.dry_run.selected} would go back"
        )
        self.facts.redriven = self._redrive(chosen, dry_run=False)
        self._teller.say(
            f"redrive --group ...: {self.facts.redriven.done} sent back, each with a full budget"
        )

    def _redrive(self, groups: Sequence[Group], *, dry_run: bool) -> Mutation:
        total = Mutation(dry_run=dry_run)
        for group in groups:
            ids = [
                entry.task_id for entry in self._dead() if entry.fingerprint == group.fingerprint
            ]
            part = DeadLetterEditor(self._parts, self._parts.auditor(claimed())).redrive(
                QUEUE, ids, dry_run=dry_run
            )
            total = replace(
                total,
                selected=total.selected + part.selected,
                done=total.done + part.done,
                skipped=total.skipped + part.skipped,
                failed=total.failed + part.failed,
            )
        return total

    def _compare(self) -> None:
        log = self._stage.receiver.log
        tasks = {task_id: self._parts.store.get(task_id) for task_id in self.facts.payloads}
        self.facts.verdict = verdict = judge(self.facts.payloads, tasks, log)
        for task_id, task in tasks.items():
            self.facts.tasks.append(
                {
                    "id": task_id,
                    "status": None if task is None else str(task.status),
                    "attempts": 0 if task is None else len(task.attempts),
                    "requests": sum(request.task_id == task_id for request in log),
                }
            )
        self._tell_verdict(verdict, sum(task is not None for task in tasks.values()))

    def _tell_verdict(self, verdict: Verdict, read_back: int) -> None:
        unsent = f", {verdict.unsent} unsent" if verdict.unsent else ""
        each = (
            "not each an attempt on record"
            if verdict.disagreements
            else "each an attempt on record"
        )
        self._teller.say(
            f"store:    {verdict.submitted} submitted, {read_back} read back: {verdict.succeeded} succeeded,"
            f" {verdict.dead} dead, {verdict.submitted - read_back} lost"
        )
        self._teller.say(
            f"receiver: {verdict.requests} requests, {each}; {verdict.lapsed} lapsed{unsent}"
        )
        for problem in verdict.disagreements[:3]:
            self._teller.say(f"  DISAGREE: {problem}")

    # -- watching ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Until every task has succeeded or is dead, and two readings say so."""
        give_up, quiet = time.monotonic() + _SETTLES_WITHIN, 0
        while quiet < 2:  # noqa: PLR2004 - two readings
            self._tend()
            state = self._look()
            quiet = quiet + 1 if state.pending + state.in_flight == 0 else 0
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"the demo's tasks did not settle within {_SETTLES_WITHIN:.0f} s: {state}"
                )
            time.sleep(_LOOK_EVERY)
        self._look(mark=True)

    def _tend(self) -> None:
        for worker in self._stage.tend():
            self._deaths += 1
            self._moments.died(worker)
            if self._deaths > _MOST_DEATHS:
                raise Unavailable("the demo's workers keep dying: " + " | ".join(worker.last_words))

    def _look(self, *, mark: bool = False) -> State:
        counts = self._parts.store.counts(QUEUE)
        elsewhere = counts.pending + counts.in_flight + counts.dead
        succeeded = max(len(self.facts.payloads) - elsewhere, 0)
        self.facts.state = State(counts.pending, counts.in_flight, succeeded, counts.dead)
        self._teller.state(self.facts.state, mark=mark)
        return self.facts.state

    def _dead(self) -> Iterator[DeadEntry]:
        return entries_of(self._parts.store, QUEUE)


def document(facts: Facts, moments: Moments) -> dict[str, Any]:
    """The whole story for programs."""
    verdict = facts.verdict
    return {
        "ok": verdict is not None and not verdict.disagreements,
        "seconds": round(moments.seconds, 1),
        "moments": [
            {"seconds": each.seconds, "text": each.text, "rule": each.rule, "task_id": each.task_id}
            for each in moments.all
        ],
        "groups": [group_view(group) for group in facts.groups],
        "redrive": {"dry_run": mutation_view(facts.dry_run), "done": mutation_view(facts.redriven)},
        "summary": {} if verdict is None else verdict.as_dict(),
        "disagreements": [] if verdict is None else list(verdict.disagreements),
        "tasks": facts.tasks,
    }


def _keyed(lines: Iterator[Line]) -> Iterator[Line]:
    """Each delivery under its event's own id, where it has one: submitting it twice is submitting
    it once.
    """
    for line in lines:
        if isinstance(line.draft, Draft) and (key := _event_id(line.draft.payload)):
            keyed = replace(line.draft, options={**line.draft.options, "key": key})
            yield Line(line.number, keyed)
        else:
            yield line


def _event_id(payload: bytes) -> str | None:
    try:
        event = json.loads(payload)
    except ValueError:
        return None
    found = event.get("id") if isinstance(event, dict) else None
    return found if isinstance(found, str) and found else None
