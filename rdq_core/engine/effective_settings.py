"""The configuration as a host acts on it. What is wrong with a queue's is told, and stops that
queue only.
"""

from rdq_core.config.settings import QueueSettings
from rdq_core.engine.ports import Candidate, ErrorSink, HandlerSource, QueueSource
from rdq_core.errors import ConfigInvalid, CorruptItem, QueueNotFound, StoreFailed


class EffectiveSettings:
    """What holds for the queues of one host. One object a process: it tells of a suspended override
    once.
    """

    def __init__(self, queues: QueueSource, handlers: HandlerSource, on_error: ErrorSink) -> None:
        self._queues = queues
        self._handlers = handlers
        self._on_error = on_error
        self._told: set[tuple[str, int]] = set()

    def of(self, queue: str) -> QueueSettings | None:
        """The settings of a queue; None when there are none to be had, which is told."""
        try:
            settings = self._queues.settings(queue)
        except (QueueNotFound, ConfigInvalid, CorruptItem, StoreFailed) as error:
            self._on_error(error, where=f"configuration of queue {queue}")
            return None
        if settings.override_suspended:
            self._tell_suspended(settings)
        return settings

    def as_defined(self, candidate: Candidate, settings: QueueSettings) -> QueueSettings:
        """The settings with the options that the candidate's handler was defined with, where this
        host knows it.

        Options that contradict what is declared are left out, as the queue's owner would expect,
        and reported.
        """
        handler = self._handlers.find(candidate.handler_ref)
        if handler is None or not handler.definition:
            return settings
        try:
            return self._queues.settings(candidate.queue, definition=handler.definition)
        except Exception as error:  # noqa: BLE001 - whatever it is, the queue's own settings hold
            self._on_error(error, where=f"options of the typed task {handler.ref}")
            return settings

    def _tell_suspended(self, settings: QueueSettings) -> None:
        at = (settings.queue, settings.revision)
        if at in self._told:
            return
        self._told.add(at)
        problem = "what people set contradicts what was declared since, and is left out"
        suspended = ConfigInvalid(
            f"queues.{settings.queue}", problem, hint=f"rdq queue get {settings.queue}"
        )
        self._on_error(suspended, where=f"configuration of queue {settings.queue}")
