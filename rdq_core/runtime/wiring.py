"""How the parts are put together: one place that knows which class stands behind which port."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rdq_core.config.settings import Host
from rdq_core.engine.auditor import Auditor, Principal
from rdq_core.engine.cancel import Canceller
from rdq_core.engine.ports import (
    AuditLog,
    Clock,
    CursorKey,
    ErrorSink,
    EventSink,
    HandlerSource,
    IdSource,
    Invoker,
    Jitter,
    JobStore,
    QueueStore,
    RateLimiter,
    Reservations,
    Sleeper,
    TaskStore,
)
from rdq_core.engine.redrive import Redriver
from rdq_core.engine.submit import Submitter
from rdq_core.errors import InputInvalid, Unavailable
from rdq_core.runtime.error_hub import PROCESS_ERRORS, ErrorHub, Listener
from rdq_core.runtime.log import LogSink
from rdq_core.runtime.system import SystemClock, SystemIds, SystemJitter, SystemSleeper

if TYPE_CHECKING:
    from rdq_core.engine.removal import Removals
    from rdq_core.engine.sweep import Sweeper
    from rdq_core.ops.advancing import Advancer
    from rdq_core.ops.audit import AuditDesk
    from rdq_core.ops.cursors import Cursors
    from rdq_core.ops.dead_letter_edits import DeadLetterEditor
    from rdq_core.ops.dead_letters import DeadLetters
    from rdq_core.ops.jobs import Jobs
    from rdq_core.ops.queue_edits import QueueEditor
    from rdq_core.ops.queues import QueueDesk
    from rdq_core.ops.short_ids import ShortIds
    from rdq_core.ops.tasks import TaskDesk
    from rdq_core.stores.dynamodb.schema import Tables

BODY_BUCKET: Final = "RDQ_BODY_BUCKET"
"""The environment variable that names the bucket for payloads and results too large for DynamoDB.
"""
_CONNECT_SECONDS: Final = 2
_READ_SECONDS: Final = 5.0
_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A store with its configuration, and the outside world around them. `idle` waits for work,
    `busy` for handlers.

    `invoker` makes what calls the functions that queues name as their handlers; None where this
    host can't.
    """

    store: TaskStore
    queues: QueueStore
    limiter: RateLimiter
    reservations: Reservations
    audit: AuditLog
    jobs: JobStore
    cursor_key: CursorKey
    clock: Clock
    ids: IdSource
    jitter: Jitter
    idle: Sleeper
    busy: Sleeper
    events: EventSink
    on_error: ErrorSink
    invoker: Callable[[], Invoker] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on_error, ErrorHub):
            object.__setattr__(self, "on_error", ErrorHub(self.on_error))

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of errors that have no task to be stored on."""
        if isinstance(self.on_error, ErrorHub):
            self.on_error.add(listener)

    def submitter(self) -> Submitter:
        """What stores new tasks."""
        return Submitter(
            self.store, self.queues, clock=self.clock, ids=self.ids, events=self.events
        )

    def canceller(self) -> Canceller:
        """What stops tasks."""
        return Canceller(self.store, self.queues, clock=self.clock, events=self.events)

    def redriver(self) -> Redriver:
        """What sends dead tasks back."""
        return Redriver(self.store, self.queues, clock=self.clock, events=self.events)

    def auditor(self, principal: Principal) -> Auditor:
        """What records this principal's operations."""
        return Auditor(self.audit, principal, clock=self.clock, ids=self.ids)

    def advancer(self, *, at_once: int = 8) -> "Advancer":
        """What takes bulk operations on, so many tasks at once."""
        from rdq_core.ops.advancing import Advancer

        return Advancer(
            self.jobs,
            self.store,
            self.redriver(),
            self.audit,
            clock=self.clock,
            ids=self.ids,
            at_once=at_once,
        )

    def job_desk(self) -> "Jobs":
        """What starts, lists and ends bulk operations."""
        from rdq_core.ops.jobs import Jobs

        return Jobs(self.jobs, self.queues, self.advancer(), clock=self.clock, ids=self.ids)

    def cursors(self) -> "Cursors":
        """What page cursors are written and read with."""
        from rdq_core.ops.cursors import Cursors

        return Cursors(self.cursor_key)

    def task_desk(self, principal: Principal | None = None) -> "TaskDesk":
        """What looks at tasks, and stops them for this principal."""
        from rdq_core.ops.tasks import TaskDesk

        auditor = None if principal is None else self.auditor(principal)
        return TaskDesk(
            self.store,
            self.queues,
            self.canceller(),
            self.cursors(),
            auditor,
            clock=self.clock,
            ids=self.ids,
        )

    def short_ids(self) -> "ShortIds":
        """What finds the task that a shortened id means."""
        from rdq_core.ops.short_ids import ShortIds

        return ShortIds(self.store, self.queues, clock=self.clock)

    def queue_desk(self) -> "QueueDesk":
        """What looks at queues."""
        from rdq_core.ops.queues import QueueDesk

        return QueueDesk(self.queues, self.store, clock=self.clock)

    def audit_desk(self) -> "AuditDesk":
        """What reads the audit log."""
        from rdq_core.ops.audit import AuditDesk

        return AuditDesk(self.audit, self.queues, self.cursors(), clock=self.clock)

    def dead_letters(self) -> "DeadLetters":
        """What looks into the DLQ."""
        from rdq_core.ops.dead_letters import DeadLetters

        return DeadLetters(self.store, self.queues, self.cursors(), clock=self.clock)

    def dead_letter_editor(self, principal: Principal) -> "DeadLetterEditor":
        """What changes dead tasks for this principal."""
        from rdq_core.ops.dead_letter_edits import DeadLetterEditor

        return DeadLetterEditor(
            self.store,
            self.queues,
            self.redriver(),
            self.job_desk(),
            self.auditor(principal),
            clock=self.clock,
            ids=self.ids,
        )

    def removals(self, auditor: Auditor) -> "Removals":
        """What brings deletions of queues to their end."""
        from rdq_core.engine.removal import Removals

        return Removals(self.queues, self.store, auditor, clock=self.clock, on_error=self.on_error)

    def editor(self, principal: Principal) -> "QueueEditor":
        """What changes queues for this principal."""
        from rdq_core.ops.queue_edits import QueueEditor

        auditor = self.auditor(principal)
        removals = self.removals(auditor)
        return QueueEditor(
            self.queues, self.store, auditor, removals, clock=self.clock, sleeper=self.idle
        )

    def sweeper(
        self,
        handlers: HandlerSource,
        *,
        serves: Sequence[str],
        worker: str,
        host: Host = Host.WORKER,
        rdq: object | None = None,
        awake: bool = False,
    ) -> "Sweeper":
        """What runs due work of the queues that it `serves`; `worker` is its name on attempt
        records.

        `rdq` is this host's `Rdq`, which the handlers' reconcilers get. InputInvalid when they need
        one and there is none: left out in silence, they would repair nothing. `awake`: it says so
        while it is at work, so that nobody starts another one.
        """
        # Here, so that submitters don't pay for asyncio and the rest of running handlers.
        from rdq_core.engine.claims import Claimer
        from rdq_core.engine.effective_settings import EffectiveSettings
        from rdq_core.engine.reconcile import Reconcilers
        from rdq_core.engine.renewals import Renewals
        from rdq_core.engine.resolve import Resolver
        from rdq_core.engine.routing import Router
        from rdq_core.engine.run import Runner, RunParts
        from rdq_core.engine.sweep import Sweeper, SweepParts
        from rdq_core.ops.background_jobs import BackgroundJobs

        if handlers.repairs and rdq is None:
            raise InputInvalid(
                "rdq", "the registry has reconcilers, and this host gives them no Rdq to work with"
            )
        router = Router(handlers, None if self.invoker is None else self.invoker())
        resolver = Resolver(
            self.store, clock=self.clock, jitter=self.jitter, events=self.events, worker=worker
        )
        run_parts = RunParts(
            store=self.store,
            router=router,
            resolver=resolver,
            clock=self.clock,
            sleeper=self.busy,
            on_error=self.on_error,
        )
        return Sweeper(
            SweepParts(
                store=self.store,
                effective_settings=EffectiveSettings(self.queues, handlers, self.on_error),
                router=router,
                claimer=Claimer(
                    self.store,
                    router,
                    clock=self.clock,
                    ids=self.ids,
                    events=self.events,
                    jitter=self.jitter,
                ),
                runner=Runner(run_parts),
                limiter=self.limiter,
                reconcilers=Reconcilers(
                    [repair.by(rdq) for repair in handlers.repairs],
                    clock=self.clock,
                    sleeper=self.busy,
                    on_error=self.on_error,
                ),
                removals=self.removals(self.auditor(Principal(f"rdq on {worker}"))),
                renewals=Renewals(
                    self.store, clock=self.clock, jitter=self.jitter, on_error=self.on_error
                ),
                serves=tuple(serves),
                host=host,
                clock=self.clock,
                jitter=self.jitter,
                idle=self.idle,
                busy=self.busy,
                on_error=self.on_error,
                reservations=self.reservations if awake else None,
                background_work=BackgroundJobs(
                    self.jobs, self.advancer(), clock=self.clock, on_error=self.on_error
                ),
            )
        )


def connect(
    client: Any = None,
    tables: "Tables | None" = None,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
    sleeper: Sleeper | None = None,
) -> Parts:
    """The parts on DynamoDB. Without arguments, on the environment's: AWS's own variables and the
    four RDQ_*_TABLE ones, which have defaults on an engine of this machine.

    `clock` is the machine's, kept right by DynamoDB's answers, unless another is given; `sleeper`
    waits between tries, and for work. Raises Unavailable when a table's name or the region is
    missing.
    """
    from rdq_core.runtime.environment import tables_in
    from rdq_core.stores.dynamodb.audit import DynamoAudit
    from rdq_core.stores.dynamodb.coordination import (
        DynamoCursorKey,
        DynamoRateLimiter,
        DynamoReservations,
    )
    from rdq_core.stores.dynamodb.jobs import DynamoJobs
    from rdq_core.stores.dynamodb.queues import DynamoQueues
    from rdq_core.stores.dynamodb.sender import watch_attempts
    from rdq_core.stores.dynamodb.tasks import DynamoTaskStore

    tables = tables or tables_in()
    client = client or dynamodb_client()
    bucket = os.environ.get(BODY_BUCKET) or None
    s3 = _client("s3", os.environ) if bucket else None
    for each in filter(None, (client, s3)):
        watch_attempts(each)
    clock = clock or _storage_clock(client, tables)
    ids, jitter, sleeper = SystemIds(), SystemJitter(), sleeper or SystemSleeper()
    queues = DynamoQueues(client, tables, clock=clock, jitter=jitter, sleeper=sleeper)
    return Parts(
        store=DynamoTaskStore(
            client,
            tables,
            clock=clock,
            ids=ids,
            jitter=jitter,
            sleeper=sleeper,
            shards_ever=queues.shards_ever,
            s3=s3,
            body_bucket=bucket,
        ),
        queues=queues,
        limiter=DynamoRateLimiter(client, tables, ids=ids, jitter=jitter, sleeper=sleeper),
        reservations=DynamoReservations(client, tables, ids=ids, jitter=jitter, sleeper=sleeper),
        audit=DynamoAudit(client, tables, jitter=jitter, sleeper=sleeper),
        jobs=DynamoJobs(client, tables, ids=ids, jitter=jitter, sleeper=sleeper),
        cursor_key=DynamoCursorKey(client, tables, ids=ids, jitter=jitter, sleeper=sleeper),
        clock=clock,
        ids=ids,
        jitter=jitter,
        idle=sleeper,
        busy=sleeper,
        events=events or LogSink(),
        on_error=PROCESS_ERRORS,
        invoker=_lambda_invoker,
    )


def _lambda_invoker() -> Invoker:
    from rdq_core.handlers.aws_lambda import LambdaInvoker

    return LambdaInvoker(lambda_client, on_error=PROCESS_ERRORS)


def lambda_client(read_timeout: float) -> Any:
    """A Lambda client on the environment that sends each request once and waits so many seconds for
    its answer.
    """
    return _client("lambda", os.environ, read_timeout=read_timeout, tries=1)


def _storage_clock(client: Any, tables: "Tables") -> Clock:
    from rdq_core.stores.dynamodb.clock import StorageClock
    from rdq_core.stores.dynamodb.queues import unused_key
    from rdq_core.stores.dynamodb.sender import Sender

    once = Sender(client, jitter=SystemJitter(), sleeper=SystemSleeper(), tries=1)
    clock = StorageClock(SystemClock(), probe=lambda: once.get(tables.control, unused_key()))
    clock.listen_to(client)
    return clock


def dynamodb_client(environ: Mapping[str, str] = os.environ) -> Any:
    """A DynamoDB client with bounded waits, on the environment's region, credentials and
    `AWS_ENDPOINT_URL`.
    """
    return _client("dynamodb", environ)


def _client(
    service: str, environ: Mapping[str, str], *, read_timeout: float = _READ_SECONDS, tries: int = 3
) -> Any:
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, NoRegionError

    from rdq_core.runtime.environment import ENDPOINT, is_local

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=read_timeout,
        # A local engine that is down stays down, and what passes is sent again by the store itself.
        retries={"mode": "standard", "total_max_attempts": 1 if is_local(environ) else tries},
        max_pool_connections=_CONNECTIONS,
        # rdq builds its requests itself, from checked input; validating them again costs a tenth of
        # a request's time.
        parameter_validation=False,
    )
    try:
        return botocore.session.get_session().create_client(
            service, config=config, endpoint_url=environ.get(ENDPOINT) or None
        )
    except NoRegionError:
        raise Unavailable(
            "no AWS region is set", hint="set AWS_REGION or AWS_DEFAULT_REGION"
        ) from None
    except (
        BotoCoreError,
        ValueError,
    ) as wrong:  # a profile that isn't there, an endpoint that is no URL
        raise Unavailable(
            f"the AWS settings can't be used: {wrong}",
            hint="check AWS_PROFILE, AWS_ENDPOINT_URL and ~/.aws/config",
        ) from None
