"""Tables, keys, indexes and attributes: the only module that spells their names in DynamoDB.

Keys, index keys, projected attributes and `expires_at` have full names, because templates, alarms
and operators use them. All other names of the tasks and dlq tables are abbreviated: each byte of a
name is stored and billed with every item.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rdq_core.domain.ids import shard_of
from rdq_core.domain.task import Task
from rdq_core.errors import Unavailable

DUE_INDEX: Final = "due"
"""On the tasks table: pending and in-flight tasks, by shard and due time. Sparse: ended tasks have
no `due_at` and are not in it.
"""
DEAD_INDEX: Final = "dead"
"""On the dlq table: dead-letter entries, by shard and time of death. Sparse: attempt records are
not in it.
"""

STATE: Final = "T"
"""The kind of the state row: the only item of a task that changes, apart from ends of life."""
ENTRY: Final = "D"
"""The kind of the dead-letter entry, which exists exactly while the task is DEAD."""
BODY_PREFIX: Final = "B#"
RESULT_PREFIX: Final = "R#"
ATTEMPT_PREFIX: Final = "A#"

QUEUES: Final = "queues"
"""The partition of queue configuration in the control table: one item per queue, under its name."""
REFERENCE_PREFIX: Final = "ref#"
"""The prefix of partitions of the control table that hold the references of a target or requester,
and its tombstone.
"""
OPEN_JOBS: Final = "jobs#open"
"""The partition of open bulk jobs in the control table, each under its id."""
ENDED_JOBS: Final = "jobs#done"
"""The partition of ended bulk jobs."""
CURSOR_SECRET: Final = "secret#cursor"  # noqa: S105 - the name of a partition
"""The partition of the key that page cursors are signed with."""
TOMBSTONE: Final = "tombstone"
"""The tombstone's sort key. It sorts after those of references, which begin with a task's id."""


class Attr(StrEnum):
    """Attribute names. `#name` in an expression stands for the member of that name."""

    TASK_ID = "task_id"
    KIND = "kind"
    QUEUE_SHARD = "queue_shard"
    DUE_AT = "due_at"
    STATUS = "status"
    FENCING_TOKEN = "fencing_token"  # noqa: S105 - the name of an attribute
    HANDLER_REF = "handler_ref"
    CONCURRENCY_KEY = "concurrency_key"
    DEAD_AT = "dead_at"
    EXPIRES_AT = "expires_at"

    # The state row; records share some of these.
    VERSION = "v"
    LIFE = "lf"
    CREATED_AT = "c"
    COMPLETED_AT = "d"
    ATTEMPT_COUNT = "n"
    HISTORY_LENGTH = "h"
    LAST_ATTEMPT = "la"
    REDRIVE_COUNT = "rd"
    FAILURE = "f"
    CLAIM_TOKEN = "t"  # noqa: S105 - the same
    CLAIMED_AT = "ca"
    HANDED_OVER = "ho"
    UNREACHED = "un"
    UNREACHED_SINCE = "us"
    UNADOPTED = "ua"
    SETTLED_BY = "sb"
    SETTLED_AS = "sa"
    OP_ID = "op"
    HANDLER_VERSION = "hv"
    SUCCESS_STARTED = "ss"
    SUCCESS_FINISHED = "sf"
    WORKER = "w"
    UNKNOWN = "u"

    # The call and its result, in a row, a body or a result item.
    BODY_REF = "b"
    BODY_ENDS_AT = "be"
    PAYLOAD = "p"
    PAYLOAD_SIZE = "ps"
    CONTENT_TYPE = "ct"
    ENCODING = "z"
    S3_KEY = "k"
    META = "m"
    RESULT_REF = "rr"
    RESULT = "r"
    RESULT_TYPE = "rt"

    # References in a row, and the tombstone in the control table.
    REFERENCES = "rf"
    REFERENCES_END_AT = "re"
    FORGOTTEN_AT = "forgotten_at"

    # Attempt records and dead-letter entries.
    PREVIOUS = "pv"
    PUT_AT = "at"
    STARTED_AT = "s"
    FINISHED_AT = "e"
    OUTCOME = "o"
    ERROR_TYPE = "et"
    ERROR_MESSAGE = "em"
    ERROR_CODE = "ec"
    ERROR_DETAIL = "ed"
    ERROR_STACK = "es"
    ERROR_UNKNOWN = "eu"
    FINGERPRINT = "fp"

    # Queue configuration in the control table, which operators read.
    PK = "pk"
    SK = "sk"
    DECLARED = "declared"
    FILE_DEFAULTS = "file_defaults"
    REVISION = "revision"
    OVERRIDE = "override"
    OVERRIDE_REASON = "override_reason"
    OVERRIDE_ENDS_AT = "override_ends_at"
    OVERRIDE_REVISION = "override_revision"
    PAUSED_AT = "paused_at"
    PAUSE_REASON = "pause_reason"
    SHARDS_EVER = "shards_ever"
    DELETING_AT = "deleting_at"
    DELETED_AT = "deleted_at"
    LOOKED_AT = "looked_at"
    OWNERS = "owners"

    # A queue's rate limit in the control table.
    HANDED_OUT_UNTIL = "handed_out_until"
    HANDED_OUT_BY = "handed_out_by"

    # The reservation of a queue by a sweep, in the control table.
    RESERVED_UNTIL = "awake_until"
    RESERVED_BY = "awakened_by"

    # Bulk jobs, and the key of page cursors, in the control table.
    JOB = "job"
    SECRET = "secret"  # noqa: S105 - the same

    # Records of the audit table, which operators query.
    OPERATION_ID = "operation_id"
    RECORDED_AT = "recorded_at"
    PRINCIPAL = "principal"
    IS_VERIFIED = "verified"
    OPERATION = "operation"
    REASON = "reason"
    PHASE = "phase"
    DETAIL = "detail"

    @property
    def alias(self) -> str:
        """The name in expressions, where DynamoDB's reserved words cannot be used as they are."""
        return f"#{self.name.lower()}"


DUE_PROJECTION: Final = (Attr.STATUS, Attr.FENCING_TOKEN, Attr.HANDLER_REF, Attr.CONCURRENCY_KEY)

_WAIT_SECONDS: Final = 120.0
_LOOK_EVERY: Final = 0.2
_NOT_HERE: Final = frozenset(
    {"UnknownOperationException", "UnsupportedOperationException", "InvalidAction"}
)
_ALREADY_SO: Final = frozenset({"ValidationException", "ContinuousBackupsUnavailableException"})
_TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_VARIABLES: Final = {
    "tasks": "RDQ_TASKS_TABLE",
    "dlq": "RDQ_DLQ_TABLE",
    "control": "RDQ_CONTROL_TABLE",
    "audit": "RDQ_AUDIT_TABLE",
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The names of the four tables."""

    tasks: str
    dlq: str
    control: str
    audit: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Tables":
        """The names in the environment. Raises Unavailable, which names each variable without a
        valid table name.
        """
        unset = [name for name in _VARIABLES.values() if not environ.get(name)]
        invalid = [
            name
            for name in _VARIABLES.values()
            if name not in unset and not _is_table_name(environ[name])
        ]
        problems = [f"no table name in {', '.join(unset)}"] if unset else []
        problems += [f"not a table's name in {', '.join(invalid)}"] if invalid else []
        if problems:
            accepted = "a table's name has 3 to 255 of the characters A-Z a-z 0-9 _ . -"
            hint = (
                "set the four RDQ_*_TABLE variables, or try it locally: rdq local"
                if unset
                else accepted
            )
            raise Unavailable("; ".join(problems), hint=hint)
        return cls(**{field: environ[name] for field, name in _VARIABLES.items()})

    def as_env(self) -> dict[str, str]:
        """The names as environment variables, for child processes and functions."""
        return {name: str(getattr(self, field)) for field, name in _VARIABLES.items()}


def _is_table_name(name: str) -> bool:
    return _TABLE_NAME.fullmatch(name) is not None


def queue_shard(queue: str, shard: int) -> str:
    """The index partition of a queue's shard, as in `payments.charge#03`."""
    return f"{queue}#{shard:02d}"


def queue_of(partition: str) -> str:
    """The queue of an index partition; queue names contain no `#`."""
    return partition.rpartition("#")[0]


def partition_of(task: Task, shards: int) -> str:
    """The index partition of a task in a queue of this number of shards."""
    shard = shard_of(task.id, shards, queue=task.queue, concurrency_key=task.concurrency_key)
    return queue_shard(task.queue, shard)


def definitions(tables: Tables) -> dict[str, dict[str, Any]]:
    """The arguments of CreateTable for each table, by the field of `Tables`."""
    return {
        "tasks": {
            **_table(
                tables.tasks, Attr.TASK_ID, Attr.KIND, (Attr.QUEUE_SHARD, "S"), (Attr.DUE_AT, "N")
            ),
            "GlobalSecondaryIndexes": [
                _index(
                    DUE_INDEX,
                    Attr.DUE_AT,
                    {"ProjectionType": "INCLUDE", "NonKeyAttributes": [*DUE_PROJECTION]},
                )
            ],
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        },
        "dlq": {
            **_table(
                tables.dlq, Attr.TASK_ID, Attr.KIND, (Attr.QUEUE_SHARD, "S"), (Attr.DEAD_AT, "N")
            ),
            "GlobalSecondaryIndexes": [_index(DEAD_INDEX, Attr.DEAD_AT, {"ProjectionType": "ALL"})],
        },
        "control": _table(tables.control, Attr.PK, Attr.SK),
        "audit": _table(tables.audit, Attr.PK, Attr.SK),
    }


def _table(name: str, partition: str, sort: str, *more: tuple[str, str]) -> dict[str, Any]:
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key(partition, sort),
        "AttributeDefinitions": [
            {"AttributeName": str(attribute), "AttributeType": kind}
            for attribute, kind in ((partition, "S"), (sort, "S"), *more)
        ],
    }


def _index(name: str, sort: str, projection: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": _key(Attr.QUEUE_SHARD, sort),
        "Projection": dict(projection),
    }


def _key(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": str(partition), "KeyType": "HASH"},
        {"AttributeName": str(sort), "KeyType": "RANGE"},
    ]


def create_tables(
    client: Any, tables: Tables, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Create the four tables with indexes, TTL, stream and point-in-time recovery; existing ones
    stay. They are active when this returns.

    TTL and recovery are left out on engines that lack them. Raises Unavailable when a table is not
    active within two minutes.
    """
    wanted = definitions(tables).values()
    for definition in wanted:
        _create(client, definition)
    for definition in wanted:
        name = definition["TableName"]
        _wait_until_active(client, name, sleep)
        _try(
            client,
            client.update_time_to_live,
            TableName=name,
            TimeToLiveSpecification=_time_to_live(),
        )
        _try(
            client,
            client.update_continuous_backups,
            TableName=name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )


def _create(client: Any, definition: dict[str, Any]) -> None:
    # Another process has created it, or is creating it.
    with contextlib.suppress(client.exceptions.ResourceInUseException):
        client.create_table(**definition)


def _wait_until_active(client: Any, name: str, sleep: Callable[[float], None]) -> None:
    for _ in range(int(_WAIT_SECONDS / _LOOK_EVERY)):
        if client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE":
            return
        sleep(_LOOK_EVERY)
    raise Unavailable(f"table {name} did not become active within {_WAIT_SECONDS:.0f} s")


def _time_to_live() -> dict[str, Any]:
    return {"Enabled": True, "AttributeName": str(Attr.EXPIRES_AT)}


def _try(client: Any, call: Callable[..., Any], **arguments: Any) -> None:
    try:
        call(**arguments)
    except client.exceptions.ClientError as error:
        # DynamoDB answers "already enabled" with a ValidationException.
        if error.response["Error"]["Code"] not in _NOT_HERE | _ALREADY_SO:
            raise
