"""The tasks that a redrive or purge would change, counted and priced before anything is changed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from rdq_core.config.settings import QueueSettings
from rdq_core.domain.dead import DeadEntry
from rdq_core.domain.times import format_time
from rdq_core.ops.orders import Operation, Order

DOLLARS_PER_WRITE_UNIT: Final = 0.625e-6
"""On demand in us-east-1, since November 2024. Other regions differ by some tens of percent."""

_UNITS: Final[Mapping[Operation, int]] = {Operation.REDRIVE: 6, Operation.PURGE: 5}
_RUN_UNITS: Final = 5
_MOST_PINS: Final = 100
_UNIT_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A selection in numbers.

    `refused` of the `selected` were redriven too often already; `young` ones died too recently to
    be selected. `pins` counts the versions that tasks are pinned to, by handler ref and version;
    `gone` names those of them that no function of the queue has any more. `write_units` is the
    price of the operation; for a redrive that includes one claim and one success of each task.
    """

    selected: int = 0
    refused: int = 0
    young: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    payload_bytes: int = 0
    write_units: int = 0
    pins: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    @property
    def dollars(self) -> float:
        """The approximate price."""
        return self.write_units * DOLLARS_PER_WRITE_UNIT

    def as_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            "selected": self.selected,
            "refused": self.refused,
            "too_young": self.young,
            "oldest_dead_at": self.oldest and format_time(self.oldest),
            "newest_dead_at": self.newest and format_time(self.newest),
            "payload_bytes": self.payload_bytes,
            "write_units": self.write_units,
            "dollars": round(self.dollars, 6),
            "pins": [
                {"handler_ref": ref, "handler_version": version, "count": count}
                for (ref, version), count in sorted(self.pins.items())
            ],
            "gone": list(self.gone),
        }


def preview(
    entries: Iterable[DeadEntry], order: Order, settings: QueueSettings, *, cutoff: datetime
) -> Preview:
    """Count the entries without keeping them. Those that died after `cutoff` are too young."""
    seen, pins = Preview(), Counter[tuple[str, str]]()
    for entry in entries:
        if not order.selection.admits(entry):
            continue
        if entry.dead_at > cutoff:
            seen = replace(seen, young=seen.young + 1)
            continue
        seen = _with(seen, entry, order, settings.limits.max_redrives)
        pin = (order.edit.handler_ref or entry.handler_ref, _pin(entry, order))
        if pin[1] and (pin in pins or len(pins) < _MOST_PINS):
            pins[pin] += 1
    return replace(
        seen, pins=pins, gone=_gone(pins, settings) if order.operation is Operation.REDRIVE else ()
    )


def _with(seen: Preview, entry: DeadEntry, order: Order, max_redrives: int) -> Preview:
    is_refused = (
        order.operation is Operation.REDRIVE
        and not order.force
        and entry.redrive_count >= max_redrives
    )
    units = _UNITS[order.operation] + (
        _RUN_UNITS if order.operation is Operation.REDRIVE else _history_units(entry)
    )
    return replace(
        seen,
        selected=seen.selected + 1,
        refused=seen.refused + is_refused,
        oldest=min(seen.oldest or entry.dead_at, entry.dead_at),
        newest=max(seen.newest or entry.dead_at, entry.dead_at),
        payload_bytes=seen.payload_bytes + entry.payload_size,
        write_units=seen.write_units + (0 if is_refused else units),
    )


def _history_units(entry: DeadEntry) -> int:
    """The price of deleting the attempts, and a payload that has an item of its own."""
    return entry.attempts + entry.payload_size // _UNIT_BYTES


def _pin(entry: DeadEntry, order: Order) -> str:
    return "" if order.edit.unpin else order.edit.handler_version or entry.handler_version or ""


def _gone(pins: Mapping[tuple[str, str], int], settings: QueueSettings) -> tuple[str, ...]:
    """Pinned versions that none of the queue's functions has any more.

    The versions of workers' handlers are not known here.
    """
    known = {ref: target.handler_version for ref, target in settings.handlers.items()}
    return tuple(
        f"{ref} {version}"
        for ref, version in sorted(pins)
        if ref in known and known[ref] not in (None, version)
    )
