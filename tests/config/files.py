"""Configuration files for tests that take only what matters."""

from textwrap import indent

import pytest

from rdq_core.config.document import parse_document
from rdq_core.errors import ConfigInvalid

FULL = """\
config_version: 1
defaults:
  retry:
    max_attempts: 5
    backoff: exponential        # fixed | linear | exponential
    initial_backoff: 1s
    backoff_multiplier: 2.0
    max_backoff: 10m
    jitter: 0.2
  execution:
    lease: 60s
    handler_timeout: 45s
    heartbeat: auto
    dispatch_give_up: 24h
  limits:
    max_payload_size: 1MiB
    task_ttl: 24h
    dead_ttl: never
    max_redrives: 10
  dispatch:
    host: auto
    batch_size: 32
    poll_interval: 1s
    concurrency: 8
    max_sweepers: 10
    rate_limit: 100/s
  index_shards: 4
queues:
  payments.charge:
    owner: team-payments
    runbook: https://wiki.example/payments-dlq
    retry: {max_attempts: 8, initial_backoff: 2s}
    classification:
      retryable: ["botocore.exceptions.*", "*Timeout*"]
      permanent: ["*.ValidationError"]
    version_mismatch: dead-letter
    handlers:
      charge-payment:
        function: payments-charge:live
        invocation: sync
        deliver: raw
        answer: http
        handler_version: v3
        outcome:
          field: status
          success: [OK]
          retryable: [THROTTLED]
          permanent: [FAILED]
"""


def a_file(queue: str = "{}", *, defaults: str = "{}") -> str:
    """A file with one queue, `billing`, whose keys start on line 7 when the defaults take one."""
    return (
        f"config_version: 1\ndefaults:\n{indent(defaults, '  ')}\n\n"
        f"queues:\n  billing:\n{indent(queue, '    ')}\n"
    )


def refused(text: str | bytes) -> ConfigInvalid:
    """The error that the file is refused with."""
    with pytest.raises(ConfigInvalid) as caught:
        parse_document(text)
    return caught.value
