"""Tables, keys, indexes and attributes, by their names in DynamoDB. Nothing else in rdq spells one
of them out.

Keys, index keys, what an index projects and `expires_at` have their full names: templates, alarms
and people use them. Everything else is abbreviated, because each byte of a name is stored and
billed with every item.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rdq_core.errors import Unavailable

DUE_INDEX: Final = "due"
"""On the tasks table: whatever a sweeper should look at, by shard and time. Sparse: terminal tasks
are not in it.
"""
DEAD_INDEX: Final = "dead"
"""On the dlq table: dead-letter entries by shard and time of death. Sparse: attempts are not in it.
"""

STATE: Final = "T"
"""The kind of the state row: the only item that ever changes."""
ENTRY: Final = "D"
"""The kind of the dead-letter entry, there exactly while the task is DEAD."""
BODY_PREFIX: Final = "B#"
RESULT_PREFIX: Final = "R#"
ATTEMPT_PREFIX: Final = "A#"

QUEUES: Final = "queues"
"""The control table's partition of queue configuration: one item a queue, under its name."""
REFERENCE_PREFIX: Final = "ref#"
"""How partitions of the control table begin that hold a target's or requester's references and
their tombstone.
"""
OPEN_JOBS: Final = "jobs#open"
"""The control table's partition of bulk operations that are not at their end, each under its id."""
ENDED_JOBS: Final = "jobs#done"
"""Its partition of those that have ended."""
CURSOR_SECRET: Final = "secret#cursor"  # noqa: S105 - the name of a partition
"""Its partition of the key that page cursors are signed with."""
TOMBSTONE: Final = "tombstone"
"""The tombstone's sort key, behind every reference's, which begins with a task's id."""


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

    # The state row, and what records share with it.
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

    # What a row or a body carries of the call, and of its result.
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

    # What a row has of its references, and what a tombstone in the control table says.
    REFERENCES = "rf"
    REFERENCES_END_AT = "re"
    FORGOTTEN_AT = "forgotten_at"

    # An attempt's record and a dead-letter entry.
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

    # A queue's configuration in the control table. It is read by people, and small.
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

    # Whether a queue has a sweep that is awake.
    AWAKE_UNTIL = "awake_until"
    AWAKENED_BY = "awakened_by"
    # A bulk operation, and the key of page cursors, in the control table.
    JOB = "job"
    SECRET = "secret"  # noqa: S105 - the same

    # A record of the audit table, for people and their queries.
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
        """How expressions write the name, so that no reserved word can be in the way."""
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
        """The names that the environment gives. Raises Unavailable naming each variable that has no
        table name.
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
        """The same names as environment variables, for child processes and functions."""
        return {name: str(getattr(self, field)) for field, name in _VARIABLES.items()}


def _is_table_name(name: str) -> bool:
    return _TABLE_NAME.fullmatch(name) is not None


def queue_shard(queue: str, shard: int) -> str:
    """The index partition of a queue's shard, as in `payments.charge#03`."""
    return f"{queue}#{shard:02d}"


def queue_of(partition: str) -> str:
    """The queue of an index partition. Queue names have no `#`."""
    return partition.rpartition("#")[0]


def definitions(tables: Tables) -> dict[str, dict[str, Any]]:
    """CreateTable's arguments of each table, by the field of `Tables`."""
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
    """The four tables with their indexes, TTL, stream and point-in-time recovery, ready for use
    when it returns.

    Recovery and TTL are left out where an engine doesn't have them. Raises Unavailable when a table
    doesn't become ready within two minutes.
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
    # Somebody else is making it or has made it: that is what was asked for.
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
