"""Queue configuration in Python, for stacks and tests: the same document as a file has.

    from rdq_core.config import builder as rdq

    document = rdq.document(
        {"payments.charge": rdq.Queue(owner="team-payments", retry=rdq.Retry(max_attempts=8))},
        defaults=rdq.Queue(limits=rdq.Limits(task_ttl=timedelta(days=2))),
    )

A key that isn't given, or is None, isn't in the document. Durations are timedeltas or text with a
unit. `document` checks everything.
"""

from collections.abc import Mapping
from typing import Any

from rdq_core.config.settings import (
    CONFIG_VERSION,
    Classification,
    Dispatch,
    Execution,
    Limits,
    Queue,
    Retry,
)
from rdq_core.config.targets import HandlerTarget, OutcomeField

__all__ = ["Classification", "Dispatch", "Execution", "HandlerTarget", "Limits", "OutcomeField"]
__all__ += ["Queue", "Retry", "document"]


def document(queues: Mapping[str, Queue], *, defaults: Queue | None = None) -> dict[str, Any]:
    """The configuration document of these queues, as JSON data in canonical spelling.

    `json.dumps` turns it into a file. Raises ConfigInvalid naming path, value and what is accepted.
    """
    from rdq_core.config.document import document_of

    given = {
        "config_version": CONFIG_VERSION,
        "queues": {name: queue.layer() for name, queue in queues.items()},
    }
    checked = document_of(given | ({} if defaults is None else {"defaults": defaults.layer()}))
    result: dict[str, Any] = {"config_version": CONFIG_VERSION, "queues": dict(checked.queues)}
    return result if defaults is None else result | {"defaults": dict(checked.defaults)}
