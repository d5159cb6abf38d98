"""Events as structured log records: one JSON object a line, with nothing in it that could be
private.
"""

import json
import logging
from dataclasses import asdict
from typing import Any, Final

from rdq_core.domain.attempt import type_name
from rdq_core.engine.events import Event
from rdq_core.errors import RdqError

LOGGER: Final = "rdq"
_TALKATIVE: Final = ("boto3", "botocore", "s3transfer", "urllib3")
"""Libraries whose loggers tell whole requests at level DEBUG."""


class LogSink:
    """An `EventSink` that writes each event to the `rdq` logger at level INFO, as JSON, without
    what doesn't apply.
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


class Quiet:
    """An `EventSink` for those who don't listen."""

    def emit(self, event: Event) -> None:
        """Drop the event."""


def log_error(error: BaseException, *, where: str) -> None:
    """An `ErrorSink`: what has no task to be stored on goes to the `rdq` logger at level ERROR.

    Messages of rdq's own errors are safe to print; of other exceptions only the type is.
    """
    record = {"event": "error", "where": where, "error_type": type_name(error)}
    if isinstance(error, RdqError):
        record |= {"code": error.code, "message": error.message}
    logging.getLogger(LOGGER).error(_line(record))


def keep_requests_out_of_logs() -> None:
    """Keep requests to AWS, in which payloads are, out of the logs of a program that is rdq's own.

    Whatever level its environment asks for, AWS's libraries log at INFO. One whose logger has a
    level of its own by now keeps it: somebody wants just that.
    """
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), default=str)
