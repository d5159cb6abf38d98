"""Who takes part: submitters, workers, operators, cancellers, those who forget, and those who clean
up.

Each is a function of the world and its own process.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rdq_core.domain.attempt import Attempt, AttemptError, Outcome
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.ids import encode_id
from rdq_core.domain.lifecycle import NO_EDIT, Edit
from rdq_core.engine.auditor import Principal
from rdq_core.engine.redrive import Redriver
from rdq_core.engine.stopping import Stop
from rdq_core.engine.submit import Draft, Submitter
from rdq_core.engine.sweep import SweepLimits
from rdq_core.errors import CorruptItem, StoreFailed, TaskConflict, TaskNotFound
from rdq_core.runtime.sweepers import build_sweeper
from rdq_core.runtime.wiring import Parts
from tests.simulation.forgetting import target_of
from tests.simulation.handlers import REF, Handlers
from tests.simulation.process import Process
from tests.simulation.queues import QUEUE
from tests.simulation.scheduler import SECOND
from tests.simulation.verdict import require

if TYPE_CHECKING:
    from tests.simulation.world import World

_LARGE = 3000


def worker(world: "World", process: Process) -> None:
    """A worker, which is started again when it ends because it can't even learn the time."""
    with contextlib.suppress(StoreFailed):
        _work(world, process)


def _work(world: "World", process: Process) -> None:
    """A worker, or a function's sweeps, one after the other; now and then it is asked to stop."""
    parts, settings = world.parts(process), world.queues.settings(QUEUE)
    longest = 2 * settings.execution.handler_timeout.total_seconds()
    handlers = Handlers(world, process, [QUEUE], longest=longest)
    sweeper = build_sweeper(parts, handlers, serves=[QUEUE], worker=process.name)
    stop = Stop()
    if process.dice.random() < 0.5:
        after = world.scheduler.now + round(process.dice.random() * 30_000_000)
        world.scheduler.at(after, lambda: _stop_soon(world, process, stop))
    if process.dice.random() < 0.5:
        sweeper.sweep(SweepLimits(horizon=None), stop)
        return
    _time_out(world, process, longest)
    while not stop.requested:
        deadline = process.clock.now() + timedelta(seconds=process.dice.choice((2, 10)))
        sweeper.sweep(
            SweepLimits(deadline=deadline, horizon=timedelta(seconds=process.dice.choice((0, 5)))),
            stop,
        )
        process.sleep(0.2 + process.dice.random())


def _time_out(world: "World", process: Process, longest: float) -> None:
    """A function is ended in the middle of whatever it does, when its time is over."""
    dice = random.Random(f"{world.plan.seed}/{process.name}")
    if dice.random() < world.plan.time_outs:
        after = world.scheduler.now + round(dice.random() * (10 + longest) * SECOND)
        world.scheduler.at(after, lambda: _end(world, process))


def _end(world: "World", process: Process) -> None:
    if process in world.processes and not world.is_calm:
        world.timeline.note(process.name, "its time is over")
        world.scheduler.kill(process.home)


def _stop_soon(world: "World", process: Process, stop: Stop) -> None:
    grace = timedelta(seconds=process.dice.choice((0, 2)))
    if process in world.processes and not world.is_calm:
        world.scheduler.spawn(process.home, lambda: _request(stop, process, grace), "stops")


def _request(stop: Stop, process: Process, grace: timedelta) -> None:
    with contextlib.suppress(StoreFailed):
        stop.request(deadline=process.clock.now() + grace)


def submitter(number: int) -> Callable[["World", Process], None]:
    """A submitter of tasks of its own. Whoever takes over from it begins anew, with the same ids:
    that is safe.
    """

    def submit_all(world: "World", process: Process) -> None:
        submit = world.parts(process).submitter()
        for draft in _drafts(world, number):
            process.sleep(process.dice.random() * world.plan.chaos / world.plan.tasks)
            while True:
                with contextlib.suppress(StoreFailed):
                    _submit(submit, draft)
                    break

    return submit_all


def _submit(submit: Submitter, draft: Draft) -> None:
    # Whose target is forgotten at that moment is refused, and has no more to say.
    with contextlib.suppress(TaskConflict):
        submit.submit(draft)


def _drafts(world: "World", number: int) -> Iterator[Draft]:
    dice = random.Random(f"{world.plan.seed}/drafts/{number}")
    for place in range(world.plan.tasks):
        # Ids are shared by the submitters, and few: some are submitted twice, and some again after
        # their end.
        task_id = encode_id(1_000_000 + dice.randrange(world.plan.tasks * 2))
        if task_id not in world.ids:
            world.ids.append(task_id)
        yield Draft(
            queue=QUEUE,
            handler_ref=REF if dice.random() < 0.95 else "nobody-knows",
            payload=dice.randbytes(_LARGE if dice.random() < 0.3 else 10),
            options={
                "id": task_id,
                "concurrency_key": f"key-{dice.randrange(world.plan.keys)}"
                if world.plan.keys and dice.random() < world.plan.keyed
                else None,
                "run_at": None if dice.random() < 0.7 else _ahead(world, dice),
                "target": target_of(place).value if world.plan.forgetters and place % 4 else None,
            },
            attempts=_earlier(world) if dice.random() < 0.15 else (),
        )


def _ahead(world: "World", dice: Any) -> Any:
    from tests.simulation.process import at

    spans = (5, 30, 3600, 86400 * 50) if world.plan.leaps else (5, 30)
    return at(world.scheduler.now) + timedelta(seconds=dice.choice(spans))


def _earlier(world: "World") -> tuple[Attempt, ...]:
    from tests.simulation.process import at

    now = at(world.scheduler.now).replace(microsecond=0)
    error = AttemptError(type="TimeoutError", message="before the submit")
    failed = Attempt(
        attempt_no=1,
        started_at=now,
        finished_at=now,
        outcome=Outcome.RETRYABLE_FAILURE,
        error=error,
    )
    return (failed, failed)


def operator(world: "World", process: Process) -> None:
    """An operator, or a job: it looks into the DLQ and sends back, edits or removes what it finds,
    while there is trouble. A job goes on under its own name when another process takes it over.
    """
    parts = world.parts(process)
    redriver = parts.redriver()
    store_calls = OperatorCalls(world, parts)
    job = process.name.partition(".")[0] if process.dice.random() < 0.5 else None
    while not world.is_calm:
        process.sleep(process.dice.random() * 3)
        after = None
        with contextlib.suppress(StoreFailed):
            _read_a_task(world, process, parts)
            while True:
                page = parts.store.dead(QUEUE, limit=2, after=after)
                for entry in page.items:
                    _treat(redriver, entry, process, job or process.ids.nonce(), store_calls)
                after = page.next
                if after is None:
                    break


class OperatorCalls:
    """What an operator does, on record if the run has an audit log."""

    def __init__(self, world: "World", parts: Parts) -> None:
        self._is_audited = world.plan.audited
        self._completed = world.audited
        self._auditor = parts.auditor(Principal("operator"))

    @contextlib.contextmanager
    def recorded(self, operation: str, op_id: str) -> Iterator[None]:
        """Around one of them."""
        if not self._is_audited:
            yield
            return
        with self._auditor.recorded(operation, QUEUE, detail={"op": op_id}) as result:
            yield
            result["op"] = op_id
        self._completed.add(op_id)


def _treat(
    redriver: Redriver, entry: DeadEntry, process: Process, op_id: str, store_calls: OperatorCalls
) -> None:
    what = process.dice.random()
    for _ in range(2):
        try:
            if what < 0.15:
                with store_calls.recorded("dlq.purge", op_id):
                    redriver.purge(entry, op_id=op_id)
            elif what < 0.8:
                edit = Edit(payload=process.dice.randbytes(_LARGE)) if what < 0.3 else NO_EDIT
                with store_calls.recorded("dlq.redrive", op_id):
                    redriver.redrive(entry, edit, op_id=op_id, force=True)
        except StoreFailed:
            continue
        except (TaskConflict, TaskNotFound):
            return
        return


def canceller(world: "World", process: Process) -> None:
    """Somebody who stops tasks, while there is trouble."""
    parts = world.parts(process)
    cancel = parts.canceller()
    while not world.is_calm:
        process.sleep(process.dice.random() * 8)
        with contextlib.suppress(StoreFailed, TaskConflict, TaskNotFound):
            _read_a_task(world, process, parts)
            if world.ids:
                cancel.cancel(process.dice.choice(world.ids), op_id=process.ids.nonce())


def forgetter(world: "World", process: Process) -> None:
    """Somebody who has all tasks of an order forgotten, and asks until it is done."""
    store = world.parts(process).store
    while not world.is_calm:
        process.sleep(process.dice.random() * 15)
        order = target_of(process.dice.randrange(world.plan.tasks))
        with contextlib.suppress(StoreFailed):
            store.forget(order, now=process.clock.now())


def cleaner(world: "World", process: Process) -> None:
    """Who reads the stream of the tasks table: late, out of order, and some of it twice."""
    store = world.parts(process).store
    while not world.is_calm:
        process.sleep(process.dice.random() * 2)
        if world.stream:
            place = process.dice.randrange(len(world.stream))
            again = process.dice.random() < 0.3
            record = world.stream[place] if again else world.stream.pop(place)
            with contextlib.suppress(StoreFailed):
                store.clean_up(record)


def _read_a_task(world: "World", process: Process, parts: Any) -> None:
    """A task that is read while it changes is read whole."""
    if not world.ids:
        return
    task_id = process.dice.choice(world.ids)
    try:
        task = parts.store.get(task_id)
    except CorruptItem as corrupt:
        require("a task is read whole", "changed each time" in corrupt.message, corrupt)
        return
    if task is not None:
        numbers = [attempt.attempt_no for attempt in task.attempts]
        require(
            "attempts are numbered without a gap",
            numbers == list(range(1, len(numbers) + 1)),
            task_id,
        )


def put_odd_row(world: "World", number: int) -> None:
    """A row of a newer version of rdq, which this one must neither touch nor fail on."""
    task_id = encode_id(2_000_000 + number)
    due_at = int(world.history.seconds * 1000)
    item = {
        "task_id": {"S": task_id},
        "kind": {"S": "T"},
        "v": {"N": "2"},
        "lf": {"S": "newer"},
        "status": {"S": "PENDING"},
        "queue_shard": {"S": f"{QUEUE}#00"},
        "due_at": {"N": str(due_at)},
        "fencing_token": {"N": "1"},
        "c": {"N": str(due_at)},
        "n": {"N": "0"},
        "h": {"N": "0"},
        "handler_ref": {"S": REF},
    }
    table = world.database.tables["rdq-tasks"]
    table.put(table.key_of(item), item, 0.0)
