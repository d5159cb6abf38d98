"""The caller's name for the audit log: its IAM identity, or else what the caller claims."""

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES
from rdq_core.domain.text import truncate
from rdq_core.engine.auditor import Principal

CLAIMED: Final = "RDQ_PRINCIPAL"
"""The environment variable in which a caller names itself, where STS is not asked."""
_SECONDS: Final = 2


def claimed(environ: Mapping[str, str] = os.environ) -> Principal:
    """The name in the environment, or else user and host. It is not verified."""
    name = environ.get(CLAIMED) or f"{_user()}@{socket.gethostname()}"
    return Principal(truncate(name, MAX_SHORT_TEXT_BYTES), verified=False)


def identified(environ: Mapping[str, str] = os.environ) -> Principal:
    """The identity of the AWS credentials, as STS answers it; the claimed name when STS fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return Principal(
            truncate(_sts().get_caller_identity()["Arn"], MAX_SHORT_TEXT_BYTES), verified=True
        )
    except (BotoCoreError, ClientError, KeyError):
        return claimed(environ)


def _sts() -> Any:
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 1}
    )
    return botocore.session.get_session().create_client("sts", config=config)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        return f"uid-{os.getuid()}"
