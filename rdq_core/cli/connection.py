"""Connects a command to an installation: its tables directly, or the ops function (--via)."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rdq_core.cli.output import Output
from rdq_core.engine.auditor import Principal
from rdq_core.engine.ports import EventSink
from rdq_core.runtime.environment import is_local
from rdq_core.runtime.wiring import Parts, connect

Document = dict[str, Any]


class OperatorClient:
    """Sends operator requests to the tables, or to the ops function named by --via.

    Requests and answers are JSON documents.
    """

    def __init__(self, output: Output) -> None:
        self._via = output.via or ""
        self._parts = None if output.via is not None else parts()

    def request(self, op: str, **fields: Any) -> Document:
        """Send a request and return its answer. Fields that are None are left out.

        Raises the error of the request, whichever side it was answered on.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        document = {"op": op, **given}
        if self._parts is None:
            from rdq_core.runtime.remote import ask_function

            return ask_function(self._via, {**document, "principal": principal().name})
        from rdq_core.ops.requests import answer

        return answer(document, self._parts, principal)

    def now(self) -> datetime:
        """The current time: by storage's clock, or this machine's when --via is given."""
        if self._parts is not None:
            return self._parts.clock.now()
        from rdq_core.runtime.system import SystemClock

        return SystemClock().now()

    def wait(self, seconds: float) -> None:
        """Wait this long."""
        import threading

        from rdq_core.runtime.system import SystemSleeper

        sleeper = self._parts.idle if self._parts is not None else SystemSleeper()
        sleeper.wait(threading.Event(), seconds)


def parts(events: EventSink | None = None) -> Parts:
    """The store and configuration named by the environment.

    Raises Unavailable, naming the variable that is missing.
    """
    from rdq_core.engine.events import Quiet

    return connect(events=events or Quiet())


def principal(environ: Mapping[str, str] = os.environ) -> Principal:
    """The identity for the audit log: from IAM, or on a local engine from the environment."""
    from rdq_core.runtime.principal import claimed, identified

    return claimed(environ) if is_local(environ) else identified(environ)
