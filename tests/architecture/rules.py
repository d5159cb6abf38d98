"""What may import what. Each rule returns its violations as sentences, and nothing when it is kept.

errors <- domain <- config <- engine <- {stores, handlers, ops} <- runtime <- client <- {functions,
cli, testing}
"""

from collections.abc import Iterator
from typing import Final

from tests.architecture.source import Import, Source

LAYERS: Final = (
    ("rdq_core.errors",),
    ("rdq_core.domain",),
    ("rdq_core.config",),
    ("rdq_core.engine",),
    ("rdq_core.stores", "rdq_core.handlers", "rdq_core.ops"),
    ("rdq_core.runtime",),
    ("rdq_core.client",),
    ("functions", "rdq_core.cli", "rdq_core.testing"),
)
"""From the bottom up. A package imports itself and lower layers, never another one of its layer."""

ONLY_IN: Final = {
    "boto3": (
        "rdq_core.stores.dynamodb",
        "rdq_core.handlers.aws_lambda",
        "rdq_core.runtime",
        "rdq_core.testing",
    ),
    "botocore": (
        "rdq_core.stores.dynamodb",
        "rdq_core.handlers.aws_lambda",
        "rdq_core.runtime",
        "rdq_core.testing",
    ),
    "aws_lambda_powertools": ("rdq_core.runtime", "functions"),
    "moto": ("rdq_core.testing",),
    "pytest": ("rdq_core.testing.plugin", "rdq_core.testing.contract"),
    "flask": ("rdq_core.testing",),
    "werkzeug": ("rdq_core.testing",),
    "typer": ("rdq_core.cli",),
    "click": ("rdq_core.cli",),
    "rich": ("rdq_core.cli",),
}
"""Where the shipped code may import third-party packages."""

IMPURE: Final = (
    "os",
    "io",
    "time",
    "random",
    "secrets",
    "uuid",
    "socket",
    "threading",
    "subprocess",
    "pathlib",
    "tempfile",
    "shutil",
    "logging",
    "asyncio",
    "urllib.request",
    "http",
    "ulid",
)
"""What the domain must not import: it takes time and jitter as arguments, and does no I/O."""

VAGUE: Final = frozenset(
    {"utils", "util", "common", "helpers", "helper", "models", "base", "types", "misc"}
)
"""Names that say nothing about what belongs there."""

MOST_LINES: Final = 400


def turned_arrows(source: Source) -> Iterator[str]:
    """Imports that go up, or to a neighbour."""
    home = _place(source.module)
    for found in source.imports:
        there = _place(found.name)
        if home is None or there is None or there == home or _is_allowed_exception(source, found):
            continue
        if there[0] >= home[0]:
            yield f"{_where(source, found)}: {home[1]} must not know {there[1]}"


def foreign_imports(source: Source) -> Iterator[str]:
    """Third-party packages, imported outside the packages that may use them."""
    for found in source.imports:
        for package, homes in ONLY_IN.items():
            if found.is_of(package) and not source.is_in(*homes, "infra"):
                yield f"{_where(source, found)}: only {', '.join(homes)} may"


def knowing_infra(source: Source) -> Iterator[str]:
    """What infra imports of the product, other than the tables' schema."""
    for found in source.imports:
        if (
            source.is_in("infra")
            and found.is_of("rdq_core")
            and not found.is_of("rdq_core.stores.dynamodb.schema")
        ):
            yield f"{_where(source, found)}: infra may import only stores.dynamodb.schema"


def impure_domain(source: Source) -> Iterator[str]:
    """I/O, clocks and random numbers in the domain."""
    if not source.is_in("rdq_core.domain"):
        return
    for found in source.imports:
        if any(found.is_of(module) for module in IMPURE):
            yield f"{_where(source, found)}: the domain is pure"
    for line, name in source.calls():
        if name in {"now", "utcnow", "today", "open", "print", "input"}:
            yield f"{source.module}:{line} calls {name}: the domain takes the time as an argument"


def vague_names(source: Source) -> Iterator[str]:
    """Modules and packages whose name says nothing."""
    for part in source.module.split("."):
        if part in VAGUE:
            yield f"{source.module}: call it by what it does, not {part}"


def long_files(source: Source) -> Iterator[str]:
    """Files with more code than one reader can hold."""
    if (lines := source.code_lines()) > MOST_LINES:
        yield f"{source.module} has {lines} lines of code; {MOST_LINES} are the most"


def _where(source: Source, found: Import) -> str:
    return f"{source.module}:{found.line} imports {found.name}"


def _place(name: str) -> tuple[int, str] | None:
    for height, layer in enumerate(LAYERS):
        for part in layer:
            if name == part or name.startswith(f"{part}."):
                return height, part
    return None


def _is_allowed_exception(source: Source, found: Import) -> bool:
    # `rdq demo` runs on the test kit's engine. No other command may, and no start of the command
    # line pays for it.
    return found.late and source.is_in("rdq_core.cli") and found.is_of("rdq_core.testing")
