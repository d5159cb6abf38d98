"""Where DynamoDB is said to be: this machine or elsewhere, and whether anybody listens there."""

from typing import Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, EndpointConnectionError

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(url: str) -> bool:
    """Whether a URL is of this machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in _LOOPBACK or host.endswith(".localhost")


def endpoint_of(error: BaseException) -> str | None:
    """Where the request of a failed connection went, without its path; None where the error doesn't
    tell.
    """
    if not isinstance(error, BotoCoreError) or not isinstance(
        url := error.kwargs.get("endpoint_url"), str
    ):
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None


def nobody_listens(error: BaseException) -> bool:
    """Whether this machine refused the connection: it does that at once, and goes on doing it until
    a server starts.
    """
    if not isinstance(error, EndpointConnectionError) or not is_loopback(endpoint_of(error) or ""):
        return False
    cause = error.kwargs.get(
        "error"
    )  # urllib3's, which tells a refusal from a name that isn't known
    return isinstance(getattr(cause, "__cause__", None), ConnectionRefusedError)
