"""The product's source as the architecture tests see it: files, their modules, and what they
import.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SHIPPED: Final = ("rdq_core", "functions", "infra")


@dataclass(frozen=True)
class Import:
    """One name that is imported. `late` means inside a function: only paid for when that runs."""

    name: str
    line: int
    late: bool

    def is_of(self, package: str) -> bool:
        """Whether the name is this package or something in it."""
        return self.name == package or self.name.startswith(f"{package}.")


@dataclass(frozen=True)
class Source:
    """One Python file. `module` is its dotted name from the root, as in `rdq_core.domain.task`."""

    path: Path
    module: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path.name)

    def is_in(self, *packages: str) -> bool:
        """Whether the module is one of these packages or lies in one."""
        return any(
            self.module == package or self.module.startswith(f"{package}.") for package in packages
        )

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, with `from a import b` as `a.b`, and relative ones made absolute."""
        return [found for node, late in _nodes(self.tree) for found in self._names(node, late=late)]

    def _names(self, node: ast.AST, *, late: bool) -> Iterator[Import]:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(alias.name, node.lineno, late)
            case ast.ImportFrom():
                for alias in node.names:
                    yield Import(f"{self._origin(node)}.{alias.name}", node.lineno, late)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        return ".".join(filter(None, [package, node.module]))

    def calls(self) -> Iterator[tuple[int, str]]:
        """The line and the last name of each call, as in `now` for `datetime.now()`."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    yield node.lineno, name

    def code_lines(self) -> int:
        """How many lines have code on them: docstrings, comments and blank lines don't count."""
        code = {
            number
            for number, line in enumerate(self.text.splitlines(), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant | ast.JoinedStr):  # a text may have such lines, too
                code.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(code - self._docstring_lines())

    def _docstring_lines(self) -> set[int]:
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.body
            ):
                first = node.body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        return lines


@cache
def sources(root: Path = ROOT, folders: tuple[str, ...] = SHIPPED) -> list[Source]:
    """Every Python file below these folders, in order. Each is read and parsed once a process."""
    paths = sorted(
        path
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if ".venv" not in path.parts
    )
    return [Source(path, _module(path.relative_to(root))) for path in paths]


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Each node in the order of the source, and whether it is inside a function."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, late = waiting.pop()
        yield node, late
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        waiting += [(child, late) for child in reversed(list(ast.iter_child_nodes(node)))]
