"""Events and errors as structured log records: one JSON object a line, without private data."""

import json
import logging
from dataclasses import asdict
from typing import Any, Final

from rdq_core.domain.attempt import type_name
from rdq_core.engine.events import Event
from rdq_core.errors import RdqError

LOGGER: Final = "rdq"
_LOGS_REQUESTS: Final = ("boto3", "botocore", "s3transfer", "urllib3")
"""Libraries that log whole requests at level DEBUG."""


class LogSink:
    """An `EventSink` that writes each event to the `rdq` logger at level INFO, as JSON without
    empty fields.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER)

    def emit(self, event: Event) -> None:
        """Log the event."""
        if self._logger.isEnabledFor(logging.INFO):
            present = {
                name: value
                for name, value in asdict(event).items()
                if value is not None and name != "name"
            }
            self._logger.info(_line({"event": str(event.name), **present}))


def log_error(error: BaseException, *, where: str) -> None:
    """An `ErrorSink` that writes to the `rdq` logger at level ERROR.

    Messages of rdq's own errors are safe to log; of other exceptions only the type is.
    """
    record = {"event": "error", "where": where, "error_type": type_name(error)}
    if isinstance(error, RdqError):
        record |= {"code": error.code, "message": error.message}
    logging.getLogger(LOGGER).error(_line(record))


def keep_requests_out_of_logs() -> None:
    """Keep requests to AWS, which contain payloads, out of the logs of rdq's own programs.

    AWS's libraries log at INFO whatever the root level is. A logger whose level is already set
    keeps it.
    """
    for name in _LOGS_REQUESTS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), default=str)
