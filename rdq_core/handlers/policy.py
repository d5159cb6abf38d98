"""What a typed task is defined with, as one layer of its queue's configuration.

The layer stands below what is declared for the queue and above the defaults of its file, so that an
operator's change wins over code that is already deployed.
"""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

from rdq_core.domain.units import format_duration
from rdq_core.errors import ConfigInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a task is tried, the first attempt included, and how long it waits in between.

    Durations are text with a unit or timedeltas. The growth is deterministic unless `jitter` is
    given: a share of each wait, 0 to 1. What is wrong here is refused when a task is defined with
    it.
    """

    max_attempts: int = 5
    backoff: Literal["fixed", "linear", "exponential"] = "exponential"
    initial_backoff: str | timedelta = "1s"
    backoff_multiplier: float = 2.0
    max_backoff: str | timedelta = "10m"
    jitter: float = 0.0


def layer_of(
    path: str,
    *,
    retry: Retry | None,
    timeout: str | timedelta | None,
    retention: str | timedelta | None,
) -> dict[str, Any]:
    """The options as a layer in canonical spelling; those that are None are left to the queue.

    `timeout` bounds an attempt. `retention` is how long an ended task stays, however it has ended.
    Raises ConfigInvalid naming the option below `path`.
    """
    layer: dict[str, Any] = {}
    if retry is not None:
        layer |= _checked(f"{path}.retry", "retry", _plain_retry(path, retry))
    if timeout is not None:
        layer |= _checked(f"{path}.timeout", "execution", {"handler_timeout": _plain(timeout)})
    if retention is not None:
        text = _plain(retention)
        layer |= _checked(f"{path}.retention", "limits", {"task_ttl": text, "dead_ttl": text})
    return layer


def _checked(path: str, section: str, keys: dict[str, Any]) -> dict[str, Any]:
    from rdq_core.config.checking import check_queue

    try:
        return check_queue({section: keys}, path="")
    except ConfigInvalid as refusal:
        within = refusal.path.removeprefix(f"{section}.")
        raise ConfigInvalid(
            f"{path}.{within}" if section == "retry" else path, refusal.problem
        ) from None


def _plain_retry(path: str, retry: object) -> dict[str, Any]:
    if not isinstance(retry, Retry):
        raise ConfigInvalid(
            f"{path}.retry", f"is a {type(retry).__name__}; accepted: rdq_core.Retry(...)"
        )
    return {name: _plain(value) for name, value in asdict(retry).items()}


def _plain(value: object) -> object:
    """A timedelta as the text that configuration has. A negative one stays, to be refused as what
    it is.
    """
    return (
        format_duration(value) if isinstance(value, timedelta) and value >= timedelta(0) else value
    )
