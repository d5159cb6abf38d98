"""The tree of errors drawn at the top of `rdq_core/errors.py` is the tree of its classes."""

import inspect
import re

from rdq_core import errors

LINE = re.compile(r"(?P<indent>[ │]*)(?P<branch>[├└]── )?(?P<name>[A-Z]\w+)")


def drawn() -> dict[str, str | None]:
    """Each error in the picture, with the one that it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in map(LINE.match, (errors.__doc__ or "").splitlines()):
        if line is None or not (line["branch"] or line["name"] == "RdqError"):
            continue
        # A branch begins below the first letter of what it hangs from.
        depth = len(line["indent"]) + bool(line["branch"])
        path = [step for step in path if step[0] < depth]
        parents[line["name"]] = path[-1][1] if path else None
        path.append((depth, line["name"]))
    return parents


def defined() -> dict[str, str | None]:
    """Each class of the module, with the one that it inherits from."""
    classes = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    ]
    return {
        kind.__name__: None if kind is errors.RdqError else kind.mro()[1].__name__
        for kind in classes
    }


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == defined()


def test_every_error_has_a_code() -> None:
    assert [
        name
        for name in defined()
        if not re.fullmatch(r"[a-z_]+", getattr(errors, name).default_code)
    ] == []
