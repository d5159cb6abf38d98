"""What a queue gets that says nothing: the lowest layer, in the shape of a file's `defaults`."""

from collections.abc import Mapping
from typing import Any, Final

BUILT_IN: Final[Mapping[str, Any]] = {
    "retry": {
        "max_attempts": 5,
        "backoff": "exponential",
        "initial_backoff": "1s",
        "backoff_multiplier": 2.0,
        "max_backoff": "10m",
        "jitter": 0.2,
    },
    "execution": {
        "lease": "1m",
        "handler_timeout": "45s",
        "heartbeat": "auto",
        "dispatch_give_up": "1d",
    },
    "classification": {"retryable": [], "permanent": []},
    "version_mismatch": "run-latest",
    "limits": {
        "max_payload_size": "1MiB",
        "task_ttl": "1d",
        "dead_ttl": "never",
        "max_redrives": 10,
    },
    "dispatch": {
        "host": "auto",
        "batch_size": 32,
        "poll_interval": "1s",
        "concurrency": 8,
        "max_sweepers": 10,
    },
    "index_shards": 4,
    "handlers": {},
}
