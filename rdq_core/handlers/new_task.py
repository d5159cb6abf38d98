"""A call as a value: for many submits at once, for outboxes, and made by typed tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from rdq_core.config.messages import did_you_mean
from rdq_core.engine.submit import SUBMIT_OPTIONS, SubmitOptions
from rdq_core.errors import InputInvalid

_REQUIRED: Final = ("queue", "handler_ref", "payload")
_FIELDS: Final = frozenset({*_REQUIRED, *SUBMIT_OPTIONS})
_LONGEST_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class NewTask:
    """The arguments of one `Rdq.submit` as a value. `SubmitOptions` documents the options."""

    queue: str
    handler_ref: str
    payload: object
    id: str | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    handler_version: str | None = None
    run_at: datetime | None = None
    delay: str | timedelta | None = None
    concurrency_key: str | None = None
    target: str | None = None
    requested_by: str | None = None

    @property
    def options(self) -> SubmitOptions:
        """The options that are set, as `Rdq.submit` takes them."""
        given = {name: getattr(self, name) for name in SUBMIT_OPTIONS}
        return cast(
            "SubmitOptions", {name: value for name, value in given.items() if value is not None}
        )


def new_task_of(item: object) -> NewTask:
    """A `NewTask` as it is, or the one that a mapping of the same names describes.

    Raises InputInvalid for anything else, naming a field that is missing or that no submit has.
    """
    if isinstance(item, NewTask):
        return item
    if not isinstance(item, Mapping):
        raise InputInvalid(
            "task", f"must be a NewTask or a mapping of its fields, not {type(item).__name__}"
        )
    for name in item:
        if name not in _FIELDS:
            shown = str(name)[:_LONGEST_NAME]
            raise InputInvalid(
                shown,
                "is not an argument of submit",
                hint=did_you_mean(shown, sorted(_FIELDS)) or None,
            )
    for name in _REQUIRED:
        if name not in item:
            raise InputInvalid(name, "is missing")
    arguments: dict[str, Any] = dict(item)
    return NewTask(**arguments)
