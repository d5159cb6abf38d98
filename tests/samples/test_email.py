"""The email sample, with a provider that says what the test likes."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from rdq_core import Status
from rdq_core.errors import InputInvalid
from rdq_core.testing.embedded import Embedded, embedded
from samples.email import mails

HERE = Path(__file__).parents[2] / "samples" / "email"

MAIL = mails.EmailInput(message_id="m-1", to="ada@example.com")


class FakeProvider:
    """Meets these errors first, then sends."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.sent: dict[str, Any] = {}

    def send(self, mail: Any, *, idempotency_key: str) -> str:
        if self.errors:
            raise self.errors.pop(0)
        self.sent[idempotency_key] = mail
        return f"provider-{len(self.sent)}"


@pytest.fixture
def local() -> Iterator[Embedded]:
    with embedded(yaml.safe_load((HERE / "queues.yaml").read_text())["queues"]) as local:
        yield local


def submitted(local: Embedded, *errors: Exception) -> str:
    """The task of a mail whose provider has met these errors, once it has run."""
    mails.Providers.current = FakeProvider(*errors)
    task_id = mails.send_email.submit(local.rdq, MAIL, key="m-1").id
    local.drain(mails.registry)
    return task_id


def test_a_mail_is_sent_under_its_tasks_own_key(local: Embedded) -> None:
    mails.Providers.current = provider = FakeProvider()
    task_id = mails.send_email.submit(local.rdq, MAIL).id
    local.drain(mails.registry)
    done = mails.send_email.result(local.rdq, task_id)
    assert (done.status, done.output) == (
        Status.SUCCEEDED,
        mails.EmailOutput(provider_id="provider-1"),
    )
    assert provider.sent == {task_id: MAIL}


def test_a_provider_that_is_throttled_is_asked_again_no_sooner_than_it_says(
    local: Embedded,
) -> None:
    task_id = submitted(local, mails.Throttled("90"))
    assert local.rdq.get(task_id).next_attempt_at == local.clock.now() + timedelta(seconds=90)
    local.drain(mails.registry, horizon="2m")
    assert mails.send_email.result(local.rdq, task_id).has_output


def test_an_address_that_does_not_exist_is_not_tried_again(local: Embedded) -> None:
    dead = mails.send_email.result(local.rdq, submitted(local, mails.NoSuchAddress("ada")))
    assert dead.failure is not None
    assert (dead.status, dead.failure.code, len(dead.attempts)) == (
        Status.DEAD,
        "email_address_invalid",
        1,
    )


def test_whoever_submits_something_else_is_told(local: Embedded) -> None:
    with pytest.raises(InputInvalid):
        mails.send_email.submit(local.rdq, {"message_id": "m-1", "to": "ada", "cc": "bob"})  # type: ignore[arg-type]


def test_the_plain_function_can_be_tested_without_rdq() -> None:
    mails.Providers.current = FakeProvider()
    assert mails.send_email.run(MAIL) == mails.EmailOutput(provider_id="provider-1")
