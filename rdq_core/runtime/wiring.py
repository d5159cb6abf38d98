"""The parts of one process: the one place that knows which class implements which port."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rdq_core.engine.ports import (
    Clock,
    EventSink,
    Invoker,
    Jitter,
    RateLimiter,
    Reservations,
    Sleeper,
)
from rdq_core.engine.submit import Submitter
from rdq_core.errors import Unavailable
from rdq_core.ops.parts import OperatorParts
from rdq_core.runtime.error_hub import PROCESS_ERRORS, ErrorHub, Listener
from rdq_core.runtime.log import LogSink
from rdq_core.runtime.system import SystemClock, SystemIds, SystemJitter, SystemSleeper

if TYPE_CHECKING:
    from rdq_core.stores.dynamodb.schema import Tables

BODY_BUCKET: Final = "RDQ_BODY_BUCKET"
"""The environment variable that names the bucket for payloads and results too large for DynamoDB.
"""
_CONNECT_SECONDS: Final = 2
_READ_SECONDS: Final = 5.0
_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(OperatorParts):
    """The parts of one process: what operators need, and what submitting and running tasks needs
    more.

    `idle` waits for work, `busy` for handlers. `invoker` makes what calls the functions that queues
    name as their handlers; None where this process can't.
    """

    limiter: RateLimiter
    reservations: Reservations
    jitter: Jitter
    busy: Sleeper
    invoker: Callable[[], Invoker] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.on_error, ErrorHub):
            object.__setattr__(self, "on_error", ErrorHub(self.on_error))

    def listen(self, listener: Listener) -> None:
        """Call `listener` with errors that have no task to be stored on."""
        if isinstance(self.on_error, ErrorHub):
            self.on_error.add(listener)

    def submitter(self) -> Submitter:
        """Stores new tasks."""
        return Submitter(
            self.store, self.queues, clock=self.clock, ids=self.ids, events=self.events
        )


def connect(
    client: Any = None,
    tables: "Tables | None" = None,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
    sleeper: Sleeper | None = None,
) -> Parts:
    """The parts of this process on DynamoDB.

    `client` and `tables` default to what the environment names: AWS's own variables and the four
    RDQ_*_TABLE ones, which have defaults on a local engine. `clock` defaults to the machine's,
    corrected by DynamoDB's answers; `sleeper` waits between attempts of a request, and for work.
    Raises Unavailable when a table's name or the region is missing.
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
    """A Lambda client on the environment.

    It sends each request once, and waits `read_timeout` seconds for the answer.
    """
    return _client("lambda", os.environ, read_timeout=read_timeout, max_attempts=1)


def _storage_clock(client: Any, tables: "Tables") -> Clock:
    from rdq_core.stores.dynamodb.clock import StorageClock
    from rdq_core.stores.dynamodb.queues import unused_key
    from rdq_core.stores.dynamodb.sender import Sender

    once = Sender(client, jitter=SystemJitter(), sleeper=SystemSleeper(), max_sends=1)
    clock = StorageClock(SystemClock(), probe=lambda: once.get(tables.control, unused_key()))
    clock.listen_to(client)
    return clock


def dynamodb_client(environ: Mapping[str, str] = os.environ) -> Any:
    """A DynamoDB client with bounded waits, on the environment's region, credentials and
    `AWS_ENDPOINT_URL`.
    """
    return _client("dynamodb", environ)


def _client(
    service: str,
    environ: Mapping[str, str],
    *,
    read_timeout: float = _READ_SECONDS,
    max_attempts: int = 3,
) -> Any:
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, NoRegionError

    from rdq_core.runtime.environment import ENDPOINT, is_local

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=read_timeout,
        # A local engine that is down stays down. The store itself repeats requests that failed.
        retries={
            "mode": "standard",
            "total_max_attempts": 1 if is_local(environ) else max_attempts,
        },
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
    except (BotoCoreError, ValueError) as wrong:  # an unknown profile, or a malformed endpoint
        raise Unavailable(
            f"the AWS settings can't be used: {wrong}",
            hint="check AWS_PROFILE, AWS_ENDPOINT_URL and ~/.aws/config",
        ) from None
