"""A typed task for tests: mail that is sent at once."""

from pydantic import BaseModel, Field

from rdq_core import TaskContext, task
from tests.engine.world import QUEUE


class Address(BaseModel):
    host: str


class Mail(BaseModel):
    to: str
    copies: int = 1
    weight: float = 0.0
    address: Address | None = None
    message_id: str = Field(default="m-1", alias="messageID")


class Sent(BaseModel):
    provider_id: str


@task("send-email", queue=QUEUE, version="v3")
def send_email(mail: Mail, ctx: TaskContext) -> Sent:
    return Sent(provider_id=f"{mail.to}/{ctx.attempt_no}")
