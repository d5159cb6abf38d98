"""Mail sent by a typed task: its types are the contract between submitter and worker."""

from typing import Protocol

from pydantic import BaseModel

from rdq_core import Abort, Registry, Retry, RetryAfter, TaskContext, task


class EmailInput(BaseModel):
    """A mail by reference: tasks are stored, so its text stays where `message_id` points."""

    message_id: str
    to: str


class EmailOutput(BaseModel):
    """The provider's receipt."""

    provider_id: str


class Throttled(Exception):
    """The provider limits our rate. `retry_after` is its header, in seconds."""

    def __init__(self, retry_after: str) -> None:
        super().__init__("too many mails")
        self.retry_after = retry_after


class NoSuchAddress(Exception):
    """The address doesn't exist."""


class Provider(Protocol):
    """The mail provider."""

    def send(self, mail: EmailInput, *, idempotency_key: str) -> str:
        """Send once for a key, however often this is called, and return the provider's id."""
        ...


class Providers:
    """The provider in use: set once at start, or by a test."""

    current: Provider


@task(
    "send-email",
    queue="email",
    version="v1",
    retry=Retry(max_attempts=5, initial_backoff="1s", max_backoff="1h", backoff="exponential"),
    timeout="2m",
    retention="30d",
)
def send_email(mail: EmailInput, ctx: TaskContext) -> EmailOutput:
    """Send a mail."""
    try:
        return EmailOutput(
            provider_id=Providers.current.send(mail, idempotency_key=ctx.idempotency_key)
        )
    except Throttled as throttled:
        raise RetryAfter(throttled.retry_after, "email_rate_limited") from throttled
    except NoSuchAddress as unknown:
        raise Abort("email_address_invalid", "no such mailbox") from unknown


registry = Registry()
registry.add(send_email)
