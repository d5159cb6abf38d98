"""Which AWS a command works on: the environment's."""

import os
from collections.abc import Mapping

from rdq_core.engine.audit import Principal
from rdq_core.engine.ports import EventSink
from rdq_core.runtime.environment import is_local
from rdq_core.runtime.wiring import Parts, connect


def parts(events: EventSink | None = None) -> Parts:
    """The store and the configuration that the environment names. Raises Unavailable naming what is missing."""
    from rdq_core.runtime.log import Quiet

    return connect(events=events or Quiet())


def principal(environ: Mapping[str, str] = os.environ) -> Principal:
    """Who is at the keyboard, for the audit log: the IAM identity, on a local engine what the environment says."""
    from rdq_core.runtime.principal import claimed, identified

    return claimed(environ) if is_local(environ) else identified(environ)
