"""How programs use rdq's types. A line that ends in `# error` must fail every type checker, any
other must pass.
"""
# pyright: strict, reportUnusedExpression=false, reportMatchNotExhaustive=false

from datetime import datetime, timedelta
from typing import assert_type

from pydantic import BaseModel

from rdq_core import (
    Deferred,
    Done,
    NewTask,
    Prepared,
    Rdq,
    Receipt,
    Registry,
    Retry,
    TaskContext,
    TaskDefinition,
    TaskResult,
    task,
)
from rdq_core.config import builder
from rdq_core.config.settings import QueueSettings


class Mail(BaseModel):
    to: str


@task("send-email", queue="email")
def send_email(mail: Mail, ctx: TaskContext) -> int:
    return ctx.attempt_no


@task("count", queue="email")
async def count(mail: Mail) -> list[str]:
    return [mail.to]


def typed(rdq: Rdq, registry: Registry) -> None:
    registry.add(send_email, count)
    assert_type(send_email, TaskDefinition[Mail, int])
    assert_type(count, TaskDefinition[Mail, list[str]])
    assert_type(send_email.submit(rdq, Mail(to="ada"), key="7"), Receipt)
    assert_type(send_email.run(Mail(to="ada")), int)
    assert_type(count.run(Mail(to="ada")), list[str])
    assert_type(send_email.result(rdq, "id"), TaskResult[int])
    send_email.submit(rdq, 5)  # error
    send_email.submit(rdq, {"to": "ada"})  # error
    send_email.submit(rdq, Mail(to="ada"), colour="red")  # error
    send_email.submit(rdq, Mail(to="ada"), delay=5)  # error
    send_email.submit(rdq, Mail(to="ada"), handler_version="v3")  # error
    assert_type(send_email.new(Mail(to="ada"), target="order:7", queue="bulk"), NewTask)
    send_email(Mail(to="ada"))  # error
    send_email.run("ada")  # error
    registry.add(len)  # error


def submitted(rdq: Rdq, due: datetime) -> None:
    assert_type(rdq.submit("email", "send", b"x", key="7", delay=timedelta(hours=1)), Receipt)
    assert_type(rdq.submit("email", "send", {"n": 1}, run_at=due, headers={"a": "b"}), Receipt)
    assert_type(rdq.prepare("email", "send", 1, id=None, requested_by="ann"), Prepared)
    rdq.submit("email", "send", 1, dealy="1h")  # error
    rdq.submit("email", "send", 1, delay=3600)  # error
    rdq.submit("email", "send", 1, headers={"a": 1})  # error
    rdq.prepare("email", "send", 1, run_at="2026-07-20T12:00:00Z")  # error
    rdq.prepare("email", "send", 1, colour="red")  # error
    NewTask("email", "send", 1, colour="red")  # error
    rdq.submit_many([NewTask("email", "send", 1, target="order:7"), {"queue": "email"}])


def id_of(order: dict[str, str]) -> str:
    return order["id"]


def guarded(rdq: Rdq, order: dict[str, str]) -> None:
    @rdq.guard("payments.charge", "charge-payment", on=ConnectionError, key=id_of)
    def charge(order: dict[str, str]) -> int:
        return len(order)

    assert_type(charge({"id": "7"}), Done[int] | Deferred)
    charge({"id": "7"}) + 1  # error
    charge("7")  # error
    paid: int = charge({"id": "7"})  # error
    assert charge({"id": "7"}).value  # error

    def forgets(order: dict[str, str]) -> int:  # error
        match charge(order):
            case Done(value):
                return value

    def remembers(order: dict[str, str]) -> int:
        match charge(order):
            case Done(value):
                return value
            case Deferred(task_id):
                return len(task_id)

    assert_type((forgets(order), remembers(order), paid), tuple[int, int, int])


def configuration(settings: QueueSettings) -> None:
    retry = Retry(max_attempts=8, max_backoff="1h", initial_backoff=timedelta(seconds=2))
    assert_type(retry.max_attempts, int)
    assert_type(retry.max_backoff, timedelta)
    assert_type(settings.retry.max_attempts, int)
    assert_type(settings.execution.lease, timedelta)
    assert_type(settings.limits.dead_ttl, timedelta | None)
    builder.Queue(retry=retry, dispatch=builder.Dispatch(host="worker"))
    Retry(max_attempts="8")  # error
    Retry(attempts=8)  # error
    Retry(backoff="cubic")  # error
    builder.HandlerTarget(invocation="sync")  # error
    assert settings.retry.max_attempt  # error
