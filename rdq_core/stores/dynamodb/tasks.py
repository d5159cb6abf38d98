"""The task store on DynamoDB: the sum of its families of verbs, over one `Access` to the tables."""

from collections.abc import Callable
from typing import Any

from rdq_core.engine.ports import Clock, IdSource, Jitter, Sleeper
from rdq_core.stores.dynamodb.access import Access
from rdq_core.stores.dynamodb.bodies import MAX_STORED_BYTES, Bodies
from rdq_core.stores.dynamodb.claim_check import ClaimCheck
from rdq_core.stores.dynamodb.claiming import ClaimVerbs
from rdq_core.stores.dynamodb.dead_letters import DeadLetterReads, DeadLetterVerbs
from rdq_core.stores.dynamodb.forgetting import ForgetVerbs
from rdq_core.stores.dynamodb.history import AttemptHistory
from rdq_core.stores.dynamodb.operator_verbs import OperatorVerbs
from rdq_core.stores.dynamodb.orphans import OrphanVerbs
from rdq_core.stores.dynamodb.preparing import PrepareVerbs
from rdq_core.stores.dynamodb.reading import ReadVerbs
from rdq_core.stores.dynamodb.references import References
from rdq_core.stores.dynamodb.schema import Tables
from rdq_core.stores.dynamodb.sender import RequestRetries, Sender
from rdq_core.stores.dynamodb.settling import SettleVerbs
from rdq_core.stores.dynamodb.submit_many import SubmitManyVerbs
from rdq_core.stores.dynamodb.submitting import SubmitVerbs


class DynamoTaskStore:
    """A `TaskStore` and `TransactionalStore` in DynamoDB, safe between threads and processes.

    `client` is a low-level boto3 client. `shards_ever` gives the most index shards that a queue has
    ever had: lists and counts visit all of them. With a `body_bucket` (and an `s3` client) payloads
    and results of more than `s3_above` stored bytes go there; without one, those over 256 KiB are
    refused.
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
        objects = None
        if body_bucket is not None:
            objects = ClaimCheck(s3, body_bucket, RequestRetries(jitter, sleeper))
        access = Access(
            sender=sender,
            tables=tables,
            clock=clock,
            ids=ids,
            bodies=Bodies(sender, tables, clock, objects, s3_above),
            history=AttemptHistory(sender, tables, clock),
            references=References(sender, tables),
        )
        self._access = access

        # Each verb of the ports, from the module that implements it.
        self.submit = SubmitVerbs(access).submit
        self.submit_many = SubmitManyVerbs(access).submit_many
        self.prepare = PrepareVerbs(access).prepare

        claims = ClaimVerbs(access)
        self.candidates = claims.candidates
        self.claim = claims.claim
        self.claim_keyed = claims.claim_keyed
        self.lapsed = claims.lapsed
        self.load = claims.load
        self.reclaim = claims.reclaim
        self.renew = claims.renew

        settles = SettleVerbs(access)
        self.adopt = settles.adopt
        self.heartbeat = settles.heartbeat
        self.complete = settles.complete
        self.reschedule = settles.reschedule
        self.release = settles.release
        self.release_lapsed = settles.release_lapsed

        dead_letters = DeadLetterVerbs(access)
        self.dead_letter = dead_letters.dead_letter
        self.dead_letter_lapsed = dead_letters.dead_letter_lapsed

        operators = OperatorVerbs(access)
        self.cancel = operators.cancel
        self.redrive = operators.redrive
        self.purge = operators.purge
        self.forget = ForgetVerbs(access).forget

        reads = ReadVerbs(access, shards_ever)
        self.get = reads.get
        self.counts = reads.counts
        dlq = DeadLetterReads(access, shards_ever)
        self.dead_entry = dlq.dead_entry
        self.bears_mark = dlq.bears_mark
        self.dead = dlq.dead

        orphans = OrphanVerbs(access)
        self.clean_up = orphans.clean_up
        self.collect_orphans = orphans.collect_orphans
