"""The table of settings: the keys of a queue's configuration, and the relations between them.

A key is declared here (those of handler functions in `targets`) and nowhere else, with its default,
its range and its meaning: the check of files, the layers, the builder, a typed task's `Retry`, the
JSON schema and docs/settings.md are made of it. Only the standard library is needed, because every
cold start of a submitter or a sweeper reads settings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal

from rdq_core.config import kinds
from rdq_core.config.messages import refusal
from rdq_core.config.sections import Part, PartMap, Section, Setting, keys_of, section
from rdq_core.config.targets import HandlerTarget
from rdq_core.domain import limits
from rdq_core.domain.backoff import JITTER_RANGE, MULTIPLIER_RANGE, BackoffKind, BackoffPolicy
from rdq_core.domain.units import format_duration, parse_duration
from rdq_core.errors import InputInvalid

CONFIG_VERSION: Final = 1
"""The version of the file's format."""

_HEARTBEAT_RANGE: Final = (timedelta(milliseconds=100), timedelta(hours=24))
_GIVE_UP_RANGE: Final = (timedelta(seconds=1), timedelta(days=30))
_POLL_RANGE: Final = (timedelta(milliseconds=10), timedelta(hours=1))
_HEARTBEATS_PER_LEASE: Final = 3
_ONE_SECOND: Final = timedelta(seconds=1)
_GLOBS: Final = kinds.TextList(
    kinds.text(
        "a pattern on error types, where * is any text and ? one character",
        limits.MAX_SHORT_TEXT_BYTES,
    )
)
_NAME: Final = kinds.text("a queue name", limits.MAX_NAME_BYTES)
_REVISION: Final = kinds.whole(0, 2**63)

Count = Setting[int, int]
Number = Setting[float, float]
Span = Setting[str | timedelta, timedelta]
Texts = Setting[Sequence[str], tuple[str, ...]]
OptionalText = Setting[str, str | None]


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


BackoffGrowth = Setting[Literal["fixed", "linear", "exponential"] | BackoffKind, BackoffKind]
MismatchChoice = Setting[Literal["run-latest", "dead-letter"] | VersionMismatch, VersionMismatch]
HostChoice = Setting[Literal["auto", "sweeper", "worker", "any"] | Host, Host]


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


@section
class Retry(Section):
    """How often a task is tried and how long it waits in between.

    Only the keys that are given are set. The others come from the queue's configuration, or else
    from the built-in defaults, which is what they read as here. Durations are timedeltas or text
    with a unit. A bad value is refused when a document is made or a task is defined with it.
    """

    max_attempts: Count = Setting(5, kinds.whole(*limits.MAX_ATTEMPTS_RANGE))
    """Attempts in all, the first included."""
    backoff: BackoffGrowth = Setting("exponential", kinds.choice(BackoffKind))
    """How the wait grows with the failures."""
    initial_backoff: Span = Setting("1s", kinds.duration(limits.BACKOFF_RANGE))
    """The wait after the first failure."""
    backoff_multiplier: Number = Setting(2.0, kinds.number(*MULTIPLIER_RANGE))
    """The factor from one wait to the next; for exponential backoff alone."""
    max_backoff: Span = Setting("10m", kinds.duration(limits.BACKOFF_RANGE))
    """The longest wait, before jitter."""
    jitter: Number = Setting(0.2, kinds.number(*JITTER_RANGE))
    """The share of itself by which a wait is made shorter or longer at random."""

    @property
    def policy(self) -> BackoffPolicy:
        """The policy in the form that computes waits."""
        return BackoffPolicy(
            kind=self.backoff,
            initial=self.initial_backoff,
            multiplier=self.backoff_multiplier,
            maximum=self.max_backoff,
            jitter=self.jitter,
        )

    def broken_relations(self) -> Iterator[tuple[str, str]]:
        """A stored value with which no waits can be computed."""
        try:
            _ = self.policy
        except InputInvalid as error:
            yield error.field, keys_of(Retry)[error.field].kind.accepted


@section
class Execution(Section):
    """How long an attempt may hold its task."""

    lease: Span = Setting("1m", kinds.duration(limits.LEASE_RANGE))
    """How long a claim lasts without a heartbeat."""
    handler_timeout: Span = Setting("45s", kinds.duration(limits.TIMEOUT_RANGE))
    """How long an attempt may run."""
    heartbeat: Setting[str | timedelta, timedelta | str] = Setting(
        "auto", kinds.duration_or(_HEARTBEAT_RANGE, {"auto": "auto", "off": "off"})
    )
    """How often a lease is renewed; auto is a third of the lease, once the timeout exceeds half of
    it.
    """
    dispatch_give_up: Span = Setting("1d", kinds.duration(_GIVE_UP_RANGE))
    """How long a handler function may be unreachable before its task is dead."""

    @property
    def heartbeat_every(self) -> timedelta | None:
        """How often the lease is renewed, None when it isn't."""
        if isinstance(self.heartbeat, timedelta):
            return self.heartbeat
        if self.heartbeat == "auto" and self.handler_timeout > self.lease / 2:
            return parse_duration(self.lease / _HEARTBEATS_PER_LEASE)
        return None

    def resolved(self) -> "Execution":
        """With `heartbeat` as an interval or `off`."""
        return self.filled(heartbeat=self.heartbeat_every or "off")

    def broken_relations(self) -> Iterator[tuple[str, str]]:
        """Without a heartbeat an attempt ends within its lease; with one it renews it in time."""
        lease, every = format_duration(self.lease), self.heartbeat_every
        if every is None and self.handler_timeout > self.lease:
            yield "handler_timeout", f"at most the lease ({lease}) while the heartbeat is off"
        if every is not None and every >= self.lease:
            yield "heartbeat", f"an interval shorter than the lease ({lease}), auto or off"


@section
class Classification(Section):
    """Which error types make a failure final: globs. Where both lists match, permanent wins."""

    retryable: Texts = Setting([], _GLOBS)
    """Error types worth another attempt."""
    permanent: Texts = Setting([], _GLOBS)
    """Error types that end the task at once."""


@section
class Limits(Section):
    """Sizes, and how long tasks stay after their end."""

    max_payload_size: Setting[str | int, int] = Setting(
        "1MiB", kinds.size(1, limits.MAX_PAYLOAD_BYTES)
    )
    """The largest payload of a submit."""
    task_ttl: Span = Setting("1d", kinds.duration(limits.RETENTION_RANGE))
    """How long succeeded and cancelled tasks stay."""
    dead_ttl: Setting[str | timedelta, timedelta | None] = Setting(
        "never", kinds.duration_or(limits.RETENTION_RANGE, {"never": None})
    )
    """How long dead tasks stay; never means that they don't expire."""
    max_redrives: Count = Setting(10, kinds.whole(0, 10_000))
    """How often one task may be redriven without force."""


@section
class Dispatch(Section):
    """Who serves the queue, and how fast."""

    host: HostChoice = Setting("auto", kinds.choice(Host))
    """Which kind of host may serve it; auto is the sweeper when the queue has handlers, else a
    worker.
    """
    batch_size: Count = Setting(32, kinds.whole(*limits.CLAIM_BATCH_RANGE))
    """Due tasks read at a time."""
    poll_interval: Span = Setting("1s", kinds.duration(_POLL_RANGE))
    """How often a worker looks for due tasks."""
    concurrency: Count = Setting(8, kinds.whole(1, 1000))
    """Handlers running at once in one sweeper."""
    max_sweepers: Count = Setting(10, kinds.whole(1, 1000))
    """Sweepers running at once."""
    rate_limit: Setting[str | tuple[int, timedelta], tuple[int, timedelta] | None] = Setting(
        None, kinds.rate_or("none")
    )
    """Claims over all sweepers together; none lifts a limit that the defaults set."""
    burst: Setting[int, int | None] = Setting(None, kinds.whole(1, 1_000_000))
    """Claims allowed at once after a pause; a second's worth of the rate_limit unless given."""

    @property
    def claim_limit(self) -> RateLimit | None:
        """The rate limit with its burst, None when claims are not limited."""
        if self.rate_limit is None:
            return None
        count, period = self.rate_limit
        second_worth = max(1, int(count * (_ONE_SECOND / period)))
        return RateLimit(count=count, period=period, burst=self.burst or second_worth)

    def resolved(self) -> "Dispatch":
        """With `burst` where there is a rate limit, and only there."""
        limit = self.claim_limit
        return self.filled(rate_limit=self.rate_limit, burst=limit.burst if limit else None)

    def broken_relations(self) -> Iterator[tuple[str, str]]:
        """A burst is part of a rate limit."""
        if self.is_given("burst") and not self.is_given("rate_limit"):
            yield "burst", "only beside a rate_limit"


@section
class QueueDefaults(Section):
    """What the queues of a file get unless they say otherwise."""

    owner: OptionalText = Setting(None, kinds.text("a team or person", limits.MAX_SHORT_TEXT_BYTES))
    """Who is asked about the queue."""
    runbook: OptionalText = Setting(None, kinds.text("a link", 1024))
    """What operators read when tasks die."""
    retry: Setting[Retry, Retry] = Setting(None, Part(Retry))
    """Attempts and waits."""
    execution: Setting[Execution, Execution] = Setting(None, Part(Execution))
    """One attempt."""
    classification: Setting[Classification, Classification] = Setting(None, Part(Classification))
    """Errors that are final."""
    version_mismatch: MismatchChoice = Setting("run-latest", kinds.choice(VersionMismatch))
    """What happens to a task that is pinned to another version."""
    limits: Setting[Limits, Limits] = Setting(None, Part(Limits))
    """Sizes and retention."""
    dispatch: Setting[Dispatch, Dispatch] = Setting(None, Part(Dispatch))
    """Hosts and pace."""
    index_shards: Count = Setting(4, kinds.whole(1, 100))
    """Partitions of the queue in the index; one carries 250 tasks a second."""


@section
class Queue(QueueDefaults):
    """One queue. The builder takes it for a file's defaults too, which have no handlers."""

    handlers: Setting[Mapping[str, HandlerTarget], Mapping[str, HandlerTarget]] = Setting(
        {}, PartMap(kinds.name_of("a handler ref"), HandlerTarget)
    )
    """Where refs run that are not in the host's own registry."""


@section
class ConfigFile(Section):
    """A queue configuration file."""

    config_version: Count = Setting(CONFIG_VERSION, kinds.whole(CONFIG_VERSION, CONFIG_VERSION))
    """The version of this format."""
    defaults: Setting[QueueDefaults, QueueDefaults] = Setting(None, Part(QueueDefaults))
    """What the file's queues get."""
    queues: Setting[Mapping[str, Queue], Mapping[str, Queue]] = Setting(
        {}, PartMap(kinds.name_of("a queue name"), Queue)
    )
    """The queues by name."""


@section
class QueueSettings(Queue):
    """Everything about one queue, after all layers: its keys, and its state.

    `revision` is the configuration's as it was read, 0 when it wasn't stored. `paused` stops
    claims, not submits; `deleting` stops submits, not claims. `override_suspended`: the override
    contradicts the declared layer and is not applied. `shards_ever` is the most `index_shards` that
    the queue has had: tasks may still be in any of them.
    """

    queue: str
    paused: bool = False
    deleting: bool = False
    override_suspended: bool = False
    revision: int = 0
    shards_ever: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """The settings that plain data describes, in the shape of a file's queue plus `queue`,
        `revision`, `paused` and `shards_ever`.

        A key that is absent has its built-in default, and keys of a newer rdq are ignored. Ranges
        were checked when the data was written; garbage and broken relations raise ConfigInvalid
        naming the path.
        """
        if not isinstance(data, Mapping):
            raise refusal(path or "queue", data, "a mapping of keys to values")
        where = path or f"queues.{data.get('queue')}"
        keys = Queue.read(data, where)
        state: dict[str, Any] = {
            key: data.get(key) is True for key in ("paused", "deleting", "override_suspended")
        } | {
            key: _REVISION.read(data[key], f"{where}.{key}")
            for key in ("revision", "shards_ever")
            if key in data
        }
        name = _NAME.read(data.get("queue"), f"{where}.queue")
        return cls(queue=name, **vars(keys), **state)

    def to_plain(self) -> dict[str, Any]:
        """The JSON data that `from_plain` reads as these settings, in canonical spelling;
        `heartbeat` is resolved.
        """
        states = {"deleting": self.deleting, "override_suspended": self.override_suspended}
        return {
            "queue": self.queue,
            **super().to_plain(),
            "paused": self.paused,
            "revision": self.revision,
            "shards_ever": self.shards_ever,
            **{name: True for name, holds in states.items() if holds},
        }
