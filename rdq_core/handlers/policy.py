"""The options of a typed task as one layer of its queue's configuration.

The layer is below the declared one and above the file's defaults, so an operator's change wins over
deployed code.
"""

from datetime import timedelta
from typing import Any, Final

from rdq_core.config.settings import Execution, Limits, Queue, Retry
from rdq_core.errors import ConfigInvalid

_OPTIONS: Final = {"execution": "timeout", "limits": "retention"}
"""The option of a definition that sets the keys of a section; those of `retry` have their names."""


def layer_of(
    path: str,
    *,
    retry: Retry | None = None,
    timeout: str | timedelta | None = None,
    retention: str | timedelta | None = None,
) -> dict[str, Any]:
    """The options as a layer in canonical spelling, with only the keys that were given.

    `timeout` limits an attempt. `retention` is how long an ended task stays, whatever its status.
    Raises ConfigInvalid naming the option below `path`.
    """
    from rdq_core.config.checking import check_queue

    if retry is not None and not isinstance(retry, Retry):
        raise ConfigInvalid(
            f"{path}.retry", f"is a {type(retry).__name__}; accepted: rdq_core.Retry(...)"
        )
    given = Queue(
        retry=retry,
        execution=Execution(handler_timeout=timeout),
        limits=Limits(task_ttl=retention, dead_ttl=retention),
    ).layer()
    try:
        return check_queue({section: keys for section, keys in given.items() if keys}, path="")
    except ConfigInvalid as refusal:
        section = refusal.path.partition(".")[0]
        raise ConfigInvalid(
            f"{path}.{_OPTIONS.get(section, refusal.path)}", refusal.problem
        ) from None
