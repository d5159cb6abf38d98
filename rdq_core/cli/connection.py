"""Which rdq a command works on: the tables that the environment names, or the ops function in front
of them.
"""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from rdq_core.cli.screen import Screen
from rdq_core.engine.auditor import Principal
from rdq_core.engine.ports import EventSink
from rdq_core.runtime.environment import is_local
from rdq_core.runtime.wiring import Parts, connect

Document = dict[str, Any]


class Asking:
    """Operator requests, answered from here or by the ops function. Each is a document, and so is
    its answer.
    """

    def __init__(self, screen: Screen) -> None:
        self._parts = None if screen.via is not None else parts()
        self._send = (
            self._answer if screen.via is None else partial(_invoke, screen.via, principal().name)
        )

    def __call__(self, op: str, **fields: Any) -> Document:
        """The answer to a request. Fields that are None are left out. Raises whatever the request
        raises.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        return self._send({"op": op, **given})

    def now(self) -> datetime:
        """The present moment: storage's where it is asked from here, else this machine's."""
        if self._parts is not None:
            return self._parts.clock.now()
        from rdq_core.runtime.system import SystemClock

        return SystemClock().now()

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        import threading

        from rdq_core.runtime.system import SystemSleeper

        sleeper = self._parts.idle if self._parts is not None else SystemSleeper()
        sleeper.wait(threading.Event(), seconds)

    def _answer(self, document: Document) -> Document:
        from rdq_core.ops.requests import answer

        if self._parts is None:
            raise RuntimeError("there are no tables to ask")
        return answer(document, self._parts, principal)


Ask = Callable[..., Document]


def parts(events: EventSink | None = None) -> Parts:
    """The store and the configuration that the environment names. Raises Unavailable naming what is
    missing.
    """
    from rdq_core.runtime.log import Quiet

    return connect(events=events or Quiet())


def principal(environ: Mapping[str, str] = os.environ) -> Principal:
    """Who is at the keyboard, for the audit log: the IAM identity, on a local engine what the
    environment says.
    """
    from rdq_core.runtime.principal import claimed, identified

    return claimed(environ) if is_local(environ) else identified(environ)


def _invoke(function: str, name: str, document: Document) -> Document:
    from rdq_core.runtime.remote import ask_function

    return ask_function(function, {**document, "principal": name})
