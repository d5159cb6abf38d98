"""The task store on DynamoDB: every verb of the port, over one way to the tables."""

from collections.abc import Callable
from typing import Any

from rdq_core.engine.ports import Clock, IdSource, Jitter, Sleeper
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.bodies import MAX_STORED_BYTES, Bodies
from rdq_core.stores.dynamodb.claim_check import ClaimCheck
from rdq_core.stores.dynamodb.claiming import Claiming
from rdq_core.stores.dynamodb.cleanup import CleaningUp
from rdq_core.stores.dynamodb.dead_lettering import DeadLettering
from rdq_core.stores.dynamodb.dlq import DeadLetters
from rdq_core.stores.dynamodb.forgetting import Forgetting
from rdq_core.stores.dynamodb.history import History
from rdq_core.stores.dynamodb.inserts import Inserts
from rdq_core.stores.dynamodb.many import SubmittingMany
from rdq_core.stores.dynamodb.orphans import Searching
from rdq_core.stores.dynamodb.preparing import Preparing
from rdq_core.stores.dynamodb.reading import Reading
from rdq_core.stores.dynamodb.redriving import Redriving
from rdq_core.stores.dynamodb.references import References
from rdq_core.stores.dynamodb.renewing import Renewing
from rdq_core.stores.dynamodb.schema import Tables
from rdq_core.stores.dynamodb.settling import Settling
from rdq_core.stores.dynamodb.slots import Keyed
from rdq_core.stores.dynamodb.submitting import Submitting
from rdq_core.stores.dynamodb.transact import Patience, Sender


class DynamoTaskStore(
    Submitting,
    SubmittingMany,
    Preparing,
    Claiming,
    Keyed,
    Renewing,
    Settling,
    DeadLettering,
    Redriving,
    Forgetting,
    DeadLetters,
    Reading,
    CleaningUp,
    Searching,
):
    """A `TaskStore` in DynamoDB, safe between threads and processes.

    `client` is a low-level boto3 client. `shards_ever` tells the most index shards that a queue has
    ever had: lists and counts visit all of them. With a `body_bucket` (and an `s3` client) payloads
    and results that take more than `s3_above` bytes are stored there; without one, those over 256
    KiB are refused.
    """

    def __init__(
        self,
        client: Any,
        tables: Tables,
        *,
        clock: Clock,
        ids: IdSource,
        jitter: Jitter,
        sleeper: Sleeper,
        shards_ever: Callable[[str], int],
        s3: Any = None,
        body_bucket: str | None = None,
        s3_above: int = MAX_STORED_BYTES,
    ) -> None:
        sender = Sender(client, jitter=jitter, sleeper=sleeper)
        checks = (
            None if body_bucket is None else ClaimCheck(s3, body_bucket, Patience(jitter, sleeper))
        )
        self._shards_ever = shards_ever
        self._inserts = Inserts(sender, tables.tasks)
        self._access = Access(
            sender=sender,
            tables=tables,
            clock=clock,
            ids=ids,
            bodies=Bodies(sender, tables, clock, checks, s3_above),
            history=History(sender, tables, clock),
            references=References(sender, tables),
        )
