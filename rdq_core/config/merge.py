"""Layers of plain configuration data, merged key by key.

    override      set by an operator, with a reason
    declared      the queue's part of a configuration file
    definition    the options of a typed task, on hosts that have registered it
    defaults      the defaults of the file that declared the queue
    built in      the default of each key, from the table of settings

For each key, the highest layer that sets it wins. Mappings are merged; any other value, including a
list, is replaced as a whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from rdq_core.config.sections import defaults_of
from rdq_core.config.settings import Queue

BUILT_IN: Final[Mapping[str, Any]] = defaults_of(Queue)
"""The lowest layer: the default of every key, in the shape of a file's `defaults`."""


def deep_merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `below` with the keys of `above` over it. Changes neither."""
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _on_top(merged.get(key), value)
    return merged


def _on_top(below: object, above: object) -> object:
    if not isinstance(above, Mapping):
        return above
    return deep_merge(below if isinstance(below, Mapping) else {}, above)


def merged(
    queue: str,
    declared: Mapping[str, Any],
    file_defaults: Mapping[str, Any],
    override: Mapping[str, Any] | None = None,
    definition: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One queue's layers merged into plain data, stored for readers that don't merge.

    Changing the result changes none of the layers.
    """
    layers = (file_defaults, definition or {}, declared, override or {})
    result = deep_merge({}, BUILT_IN)
    for layer in layers:
        result = deep_merge(result, layer)
    return result | {"queue": queue}


def leaves(layer: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Every value of a layer by its dotted path. An empty mapping is a value."""
    values: dict[str, Any] = {}
    for key, value in layer.items():
        values |= (
            leaves(value, f"{path}{key}.")
            if isinstance(value, Mapping) and value
            else {f"{path}{key}": value}
        )
    return values


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The differences of two layers: by dotted path, the values before and after; None is unset."""
    old, new = leaves(before), leaves(after)
    paths = [*old, *(path for path in new if path not in old)]
    pairs = {path: (old.get(path), new.get(path)) for path in paths}
    return {
        path: pair
        for path, pair in pairs.items()
        if pair[0] != pair[1] and pair not in ((None, {}), ({}, None))
    }
