"""Loggers that functions set up for their whole process, and that a test must leave as they were."""

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from rdq_core.runtime.log import LOGGER

AWS: Final = ("boto3", "botocore", "s3transfer", "urllib3")
ENGINE: Final = "moto"
"""The other end of requests, which is in the same process only here."""


@pytest.fixture
def function_logs() -> Iterator[None]:
    """The `rdq` logger as it was before, afterwards; AWS's without a level of their own, meanwhile."""
    log = logging.getLogger(LOGGER)
    before = {**vars(log), "handlers": list(log.handlers), "filters": list(log.filters)}
    levels = {name: logging.getLogger(name).level for name in (*AWS, ENGINE)}
    for name in AWS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger(ENGINE).setLevel(logging.INFO)
    yield
    vars(log).clear()
    vars(log).update(before)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
