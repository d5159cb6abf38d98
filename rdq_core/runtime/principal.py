"""Who asks: the IAM identity that AWS vouches for, else what the caller says of itself."""

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from rdq_core.domain.limits import MAX_SHORT_TEXT_BYTES
from rdq_core.domain.text import truncate
from rdq_core.engine.auditor import Principal

CLAIMED: Final = "RDQ_PRINCIPAL"
"""The environment variable with which a caller names itself, where AWS doesn't."""
_SECONDS: Final = 2


def claimed(environ: Mapping[str, str] = os.environ) -> Principal:
    """What the environment says, or the user of this machine: nobody vouches for it."""
    name = environ.get(CLAIMED) or f"{_user()}@{socket.gethostname()}"
    return Principal(truncate(name, MAX_SHORT_TEXT_BYTES), verified=False)


def identified(environ: Mapping[str, str] = os.environ) -> Principal:
    """The identity behind the AWS credentials, as STS tells it; what is claimed where STS doesn't
    answer.
    """
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

    patience = Config(
        connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 1}
    )
    return botocore.session.get_session().create_client("sts", config=patience)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid-{os.getuid()}"
