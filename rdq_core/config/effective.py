"""A queue's effective settings, merged from its layers.

The layers were validated when they were written. The relations between keys are checked here,
because two valid layers may contradict each other. Only the standard library is needed, so that
sweepers can do it at claim time.
"""

from collections.abc import Mapping
from typing import Any

from rdq_core.config.merge import merged
from rdq_core.config.settings import QueueSettings


def effective(
    queue: str,
    declared: Mapping[str, Any],
    file_defaults: Mapping[str, Any],
    override: Mapping[str, Any] | None = None,
    definition: Mapping[str, Any] | None = None,
) -> QueueSettings:
    """The queue's settings, merged from its layers.

    Override goes over declared, over definition, over the file's defaults, over what is built in.
    Raises ConfigInvalid when the layers contradict each other: at claim time, use the declared
    layer alone then.
    """
    return QueueSettings.from_plain(merged(queue, declared, file_defaults, override, definition))
