"""The stores in DynamoDB. A task is a set of immutable items, published by one small state row that
every conditional write goes through.

    tasks.py            DynamoTaskStore: the sum of the families of verbs below
    submitting.py       submit · submit_many.py · preparing.py: as part of another transaction
    claiming.py         find, lease, take over, renew · concurrency_keys.py: one holder per key
    settling.py         adopt, heartbeat, complete, reschedule, release · ambiguity.py: lost answers
    dead_letters.py     into the DLQ, and reading it
    operator_verbs.py   cancel, redrive, purge · forgetting.py
    reading.py          whole tasks, counts · orphans.py: clean-up, and the search for the rest

    state_row.py        the row · history.py: attempt records · bodies.py: payloads and results
    references.py       targets and requesters · claim_check.py: content in S3 · stacks.py

    queues.py · jobs.py · audit.py · coordination.py: the other stores
    clock.py            the storage clock

    schema.py           tables, keys, indexes, attribute names
    expressions.py      the named clauses of conditional writes
    values.py           low-level values · sender.py: requests · faults.py: what failures mean
    access.py           what the verbs share
"""
