"""Imports the application's registry by the name of its module."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from rdq_core.domain.attempt import type_name
from rdq_core.errors import InputInvalid, RdqError
from rdq_core.handlers.registry import Registry

_CONVENTION: Final = "registry"
_PACKAGE: Final = Path(__file__).parents[1]


def load_registry(target: str) -> Registry:
    """The registry of MODULE[:REGISTRY]. Raises InputInvalid when there is none."""
    name, _, attribute = target.partition(":")
    module = _imported(name)
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, Registry):
            raise InputInvalid("module", f"{name} has no Registry named {attribute}")
        return found
    conventional = getattr(module, _CONVENTION, None)
    if isinstance(conventional, Registry):
        return conventional
    candidates = {
        attr: value for attr, value in vars(module).items() if isinstance(value, Registry)
    }
    if len(candidates) != 1:
        several = f"several: {', '.join(candidates)}" if candidates else "none"
        raise InputInvalid(
            "module", f"{name} should have one Registry, and has {several}", hint=f"say {name}:NAME"
        )
    return next(iter(candidates.values()))


def _imported(name: str) -> Any:
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").replace("/", ".").strip(".")
        raise InputInvalid(
            "module", f"{name} is a file; a module's name is needed", hint=f"rdq worker {dotted}"
        )
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except RdqError as refused:
        refused.message = f"importing {name}: {refused.message}{_place(refused)}"
        raise
    except ModuleNotFoundError as missing:
        mine = missing.name in (name, name.partition(".")[0])
        where = "in this folder or installed" if mine else f"which {name} imports{_place(missing)}"
        raise InputInvalid("module", f"there is no module {missing.name} {where}") from missing
    except (SyntaxError, ImportError) as broken:
        message = broken.msg if isinstance(broken, SyntaxError) else str(broken)
        raise InputInvalid("module", f"importing {name}: {message}{_place(broken)}") from broken
    except Exception as broken:
        raise InputInvalid(
            "module",
            f"importing {name} raised {type_name(broken)}{_place(broken)}",
            hint="run it again with --debug for the traceback",
        ) from broken


def _place(error: BaseException) -> str:
    """The file and line of the user's code at which an import failed; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _is_ours(file: str) -> bool:
    return (
        file.startswith("<frozen importlib")
        or file == importlib.__file__
        or _PACKAGE in Path(file).parents
    )
