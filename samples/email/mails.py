"""A typed task that sends mail: its types are the contract between submitter and handler."""

from typing import Protocol

from pydantic import BaseModel

from rdq_core import Abort, Registry, Retry, RetryAfter, TaskContext, task


class EmailInput(BaseModel):
    """A mail, by reference: the text is where `message_id` says, since tasks are no place for
    private letters.
    """

    message_id: str
    to: str


class EmailOutput(BaseModel):
    """What the provider has made of it."""

    provider_id: str


class Throttled(Exception):
    """The provider wants fewer mails. `retry_after` is its own header, in seconds."""

    def __init__(self, retry_after: str) -> None:
        super().__init__("too many mails")
        self.retry_after = retry_after


class NoSuchAddress(Exception):
    """The address does not exist, so trying again is useless."""


class Provider(Protocol):
    """The mail provider."""

    def send(self, mail: EmailInput, *, idempotency_key: str) -> str:
        """Send once for a key, however often it is asked, and answer the provider's own id."""
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
        raise Abort("email_address_invalid", "no such address") from unknown


registry = Registry()
registry.add(send_email)
