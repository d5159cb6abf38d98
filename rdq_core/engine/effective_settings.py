"""The configuration that one host acts on. An error in a queue's configuration is reported, and
stops that queue only.
"""

from rdq_core.config.settings import Host, QueueSettings
from rdq_core.engine.ports import Candidate, ErrorSink, HandlerSource, QueueSource
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed


class EffectiveSettings:
    """The settings of the queues of one host. One object a process, so that a suspended override is
    reported once.
    """

    def __init__(self, queues: QueueSource, handlers: HandlerSource, on_error: ErrorSink) -> None:
        self._queues = queues
        self._handlers = handlers
        self._on_error = on_error
        self._reported: set[tuple[str, int]] = set()

    def of(self, queue: str) -> QueueSettings | None:
        """The settings of a queue; None when they can't be read, which is reported."""
        try:
            settings = self._queues.settings(queue)
        except (QueueNotFound, ConfigInvalid, CorruptItem, StoreFailed) as error:
            self._on_error(error, where=f"configuration of queue {queue}")
            return None
        if settings.override_suspended:
            self._report_suspended(settings)
        return settings

    def as_defined(self, candidate: Candidate, settings: QueueSettings) -> QueueSettings:
        """The settings with the options that the candidate's handler was defined with, if this host
        has that handler.

        Options that contradict what is declared are dropped, as the queue's owner would expect, and
        reported.
        """
        handler = self._handlers.find(candidate.handler_ref)
        if handler is None or not handler.definition:
            return settings
        try:
            return self._queues.settings(candidate.queue, definition=handler.definition)
        except Exception as error:  # noqa: BLE001 - whatever it is, the queue's own settings hold
            self._on_error(error, where=f"options of the typed task {handler.ref}")
            return settings

    def _report_suspended(self, settings: QueueSettings) -> None:
        # Once per revision: settings are read each second.
        revision = (settings.queue, settings.revision)
        if revision in self._reported:
            return
        self._reported.add(revision)
        problem = "the override contradicts what has been declared since, and is not applied"
        suspended = ConfigInvalid(
            f"queues.{settings.queue}", problem, hint=f"rdq queue get {settings.queue}"
        )
        self._on_error(suspended, where=f"configuration of queue {settings.queue}")


def is_served(settings: QueueSettings, host: Host) -> bool:
    """Whether this kind of host takes tasks of the queue now."""
    return not settings.paused and settings.host in (host, Host.ANY)
