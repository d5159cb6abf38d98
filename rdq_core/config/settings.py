"""The configuration that is in effect for one queue, as records that the engine reads.

Made of the merged layers' plain data by the standard library alone, because every cold start of a
submitter or a sweeper comes by here. Settings that were read keep their relations: a handler
without heartbeat fits into its lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from rdq_core.config.built_in import BUILT_IN
from rdq_core.config.merge import deep_merge
from rdq_core.config.plain import Plain
from rdq_core.config.targets import HandlerTarget
from rdq_core.domain.backoff import BackoffKind, BackoffPolicy
from rdq_core.domain.units import format_duration, format_rate, format_size, parse_duration
from rdq_core.errors import ConfigInvalid, InputInvalid

_HEARTBEATS_PER_LEASE: Final = 3
_ONE_SECOND: Final = timedelta(seconds=1)


class VersionMismatch(StrEnum):
    """What happens to a task pinned to another version than the handler has."""

    RUN_LATEST = "run-latest"
    DEAD_LETTER = "dead-letter"


class Host(StrEnum):
    """Which kind of host may serve a queue."""

    AUTO = "auto"
    SWEEPER = "sweeper"
    WORKER = "worker"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How often a task is tried, the first attempt included, and how long it waits in between."""

    max_attempts: int
    backoff: BackoffPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """How long an attempt may hold its task. `heartbeat_every` is None when the lease isn't
    renewed.
    """

    lease: timedelta
    handler_timeout: timedelta
    heartbeat_every: timedelta | None
    dispatch_give_up: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationRules:
    """Globs on the error's type; where both lists match, permanent wins."""

    retryable: tuple[str, ...] = ()
    permanent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Sizes in bytes and how long ended tasks stay. `dead_ttl` is None when dead tasks stay for
    good.
    """

    max_payload_size: int
    task_ttl: timedelta
    dead_ttl: timedelta | None
    max_redrives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most `count` claims in each `period`, over all sweepers together; `burst` of them at once
    after a pause.
    """

    count: int
    period: timedelta
    burst: int

    @property
    def per_second(self) -> float:
        """The same rate in claims a second."""
        return self.count / self.period.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """Who serves the queue and how fast. `rate_limit` is None when it is not limited."""

    host: Host
    batch_size: int
    poll_interval: timedelta
    concurrency: int
    max_sweepers: int
    rate_limit: RateLimit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Everything about one queue, after all layers.

    `revision` is the configuration's as it was read, 0 when it wasn't stored. `paused` stops
    claims, not submits; `deleting` stops submits, not claims. `override_suspended`: what people set
    contradicts what was declared since. `shards_ever` is the most `index_shards` that the queue has
    had: tasks may still lie in any of them.
    """

    queue: str
    retry: RetrySettings
    execution: ExecutionSettings
    limits: LimitSettings
    dispatch: DispatchSettings
    classification: ClassificationRules = ClassificationRules()
    version_mismatch: VersionMismatch = VersionMismatch.RUN_LATEST
    index_shards: int = 4
    handlers: Mapping[str, HandlerTarget] = field(default_factory=dict)
    owner: str | None = None
    runbook: str | None = None
    paused: bool = False
    deleting: bool = False
    override_suspended: bool = False
    revision: int = 0
    shards_ever: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards_ever", max(self.shards_ever, self.index_shards))

    @property
    def host(self) -> Host:
        """The kind of host that serves the queue, `auto` resolved: the sweeper when it has
        handlers, else a worker.
        """
        if self.dispatch.host is not Host.AUTO:
            return self.dispatch.host
        return Host.SWEEPER if self.handlers else Host.WORKER

    @classmethod
    def from_plain(cls, data: Mapping[str, Any], *, path: str | None = None) -> "QueueSettings":
        """The settings that plain data says, in the shape of a file's queue plus `queue`,
        `revision`, `paused` and `shards_ever`.

        What it leaves out is built in, and keys of a newer rdq are passed over. Ranges were checked
        when the data was written; garbage and broken relations raise ConfigInvalid naming the path.
        """
        if not isinstance(data, Mapping):
            raise ConfigInvalid(
                path or "queue", f"is {type(data).__name__}; accepted: a mapping of keys to values"
            )
        plain = Plain(deep_merge(BUILT_IN, data), path or f"queues.{data.get('queue')}")
        settings = cls(
            queue=plain.text("queue"),
            owner=plain.optional_text("owner"),
            runbook=plain.optional_text("runbook"),
            retry=_retry(plain.section("retry")),
            execution=_execution(plain.section("execution")),
            classification=_classification(plain.section("classification")),
            version_mismatch=plain.choice("version_mismatch", VersionMismatch),
            limits=_limits(plain.section("limits")),
            dispatch=_dispatch(plain.section("dispatch")),
            index_shards=plain.whole("index_shards"),
            handlers={
                ref: HandlerTarget.from_plain(entry)
                for ref, entry in plain.section("handlers").sections()
            },
            paused=data.get("paused") is True,
            deleting=data.get("deleting") is True,
            override_suspended=data.get("override_suspended") is True,
            revision=plain.whole("revision", least=0) if plain.has("revision") else 0,
            shards_ever=plain.whole("shards_ever", least=0) if plain.has("shards_ever") else 0,
        )
        _check_heartbeat(plain.section("execution"), settings.execution)
        return settings

    def to_plain(self) -> dict[str, Any]:
        """The JSON data that `from_plain` reads as these settings, in canonical spelling;
        `heartbeat` is resolved.
        """
        named = {"queue": self.queue, "owner": self.owner, "runbook": self.runbook}
        states = {"deleting": self.deleting, "override_suspended": self.override_suspended}
        return {name: text for name, text in named.items() if text is not None} | {
            "retry": _plain_retry(self.retry),
            "execution": _plain_execution(self.execution),
            "classification": {
                "retryable": list(self.classification.retryable),
                "permanent": list(self.classification.permanent),
            },
            "version_mismatch": str(self.version_mismatch),
            "limits": _plain_limits(self.limits),
            "dispatch": _plain_dispatch(self.dispatch),
            "index_shards": self.index_shards,
            "handlers": {ref: target.to_plain() for ref, target in self.handlers.items()},
            "paused": self.paused,
            "revision": self.revision,
            "shards_ever": self.shards_ever,
            **{name: True for name, holds in states.items() if holds},
        }


def _retry(plain: Plain) -> RetrySettings:
    try:
        policy = BackoffPolicy(
            kind=plain.choice("backoff", BackoffKind),
            initial=plain.duration("initial_backoff"),
            multiplier=plain.number("backoff_multiplier"),
            maximum=plain.duration("max_backoff"),
            jitter=plain.number("jitter"),
        )
    except InputInvalid as error:
        raise ConfigInvalid(f"{plain.path}.{error.field}", error.problem) from None
    return RetrySettings(max_attempts=plain.whole("max_attempts"), backoff=policy)


def _plain_retry(retry: RetrySettings) -> dict[str, Any]:
    return {
        "max_attempts": retry.max_attempts,
        "backoff": str(retry.backoff.kind),
        "initial_backoff": format_duration(retry.backoff.initial),
        "backoff_multiplier": retry.backoff.multiplier,
        "max_backoff": format_duration(retry.backoff.maximum),
        "jitter": retry.backoff.jitter,
    }


def _execution(plain: Plain) -> ExecutionSettings:
    lease, timeout = plain.duration("lease"), plain.duration("handler_timeout")
    automatic = parse_duration(lease / _HEARTBEATS_PER_LEASE) if timeout > lease / 2 else None
    return ExecutionSettings(
        lease=lease,
        handler_timeout=timeout,
        heartbeat_every=automatic
        if plain.is_("heartbeat", "auto")
        else plain.duration_or("heartbeat", "off"),
        dispatch_give_up=plain.duration("dispatch_give_up"),
    )


def _plain_execution(execution: ExecutionSettings) -> dict[str, Any]:
    every = execution.heartbeat_every
    return {
        "lease": format_duration(execution.lease),
        "handler_timeout": format_duration(execution.handler_timeout),
        "heartbeat": "off" if every is None else format_duration(every),
        "dispatch_give_up": format_duration(execution.dispatch_give_up),
    }


def _check_heartbeat(plain: Plain, execution: ExecutionSettings) -> None:
    lease = format_duration(execution.lease)
    if execution.heartbeat_every is None and execution.handler_timeout > execution.lease:
        raise plain.refuse(
            "handler_timeout", f"at most the lease ({lease}) while the heartbeat is off"
        )
    if execution.heartbeat_every is not None and execution.heartbeat_every >= execution.lease:
        raise plain.refuse(
            "heartbeat", f"an interval shorter than the lease ({lease}), auto or off"
        )


def _classification(plain: Plain) -> ClassificationRules:
    return ClassificationRules(
        retryable=plain.texts("retryable"), permanent=plain.texts("permanent")
    )


def _limits(plain: Plain) -> LimitSettings:
    return LimitSettings(
        max_payload_size=plain.size("max_payload_size"),
        task_ttl=plain.duration("task_ttl"),
        dead_ttl=plain.duration_or("dead_ttl", "never"),
        max_redrives=plain.whole("max_redrives", least=0),
    )


def _plain_limits(limits: LimitSettings) -> dict[str, Any]:
    return {
        "max_payload_size": format_size(limits.max_payload_size),
        "task_ttl": format_duration(limits.task_ttl),
        "dead_ttl": "never" if limits.dead_ttl is None else format_duration(limits.dead_ttl),
        "max_redrives": limits.max_redrives,
    }


def _dispatch(plain: Plain) -> DispatchSettings:
    return DispatchSettings(
        host=plain.choice("host", Host),
        batch_size=plain.whole("batch_size"),
        poll_interval=plain.duration("poll_interval"),
        concurrency=plain.whole("concurrency"),
        max_sweepers=plain.whole("max_sweepers"),
        rate_limit=_rate_limit(plain),
    )


def _plain_dispatch(dispatch: DispatchSettings) -> dict[str, Any]:
    limit = dispatch.rate_limit
    return {
        "host": str(dispatch.host),
        "batch_size": dispatch.batch_size,
        "poll_interval": format_duration(dispatch.poll_interval),
        "concurrency": dispatch.concurrency,
        "max_sweepers": dispatch.max_sweepers,
    } | ({"rate_limit": "none"} if limit is None else _plain_limit(limit))


def _rate_limit(plain: Plain) -> RateLimit | None:
    if not plain.has("rate_limit") and plain.has("burst"):
        raise plain.refuse("burst", "only beside a rate_limit")
    if not plain.has("rate_limit") or plain.is_("rate_limit", "none"):
        return None
    count, period = plain.rate("rate_limit")
    second_worth = max(1, int(count * (_ONE_SECOND / period)))
    return RateLimit(
        count=count,
        period=period,
        burst=plain.whole("burst") if plain.has("burst") else second_worth,
    )


def _plain_limit(limit: RateLimit) -> dict[str, Any]:
    return {"rate_limit": format_rate(limit.count, limit.period), "burst": limit.burst}
