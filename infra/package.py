"""Builds the zips of rdq's functions for Lambda, from the lock file, the same bytes each time.

    python infra/package.py                   dist/rdq-functions-arm64.zip and -x86_64.zip
    python infra/package.py --boto3 pinned    with the lock file's boto3, not the runtime's
    python infra/package.py --python 3.12     for another Python than Lambda's newest

One zip has all functions: their handlers are `functions.<name>.handler`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements-lambda.lock"
PLATFORMS: Final = {"arm64": "aarch64-manylinux2014", "x86_64": "x86_64-manylinux2014"}
PYTHON: Final = "3.13"
MOST_BYTES: Final = 6_000_000

_OF_BOTO3: Final = frozenset(
    {"boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3"}
)
"""What Lambda's Python runtimes include."""
_SERVICES: Final = frozenset({"dynamodb", "lambda", "s3", "sts"})
"""What rdq's functions call: descriptions of the other four hundred services would take 15 MB."""
_NOT_SHIPPED: Final = re.compile(
    r"__pycache__/|\.pyc$|\.pyi$|^bin/|\.lock$|dist-info/RECORD$"
    # a megabyte that rdq never loads
    r"|/swagger_ui/.*\.(js|css)$|^dateutil/zoneinfo/.*\.tar\.gz$"
    r"|^yaml/_yaml\..*\.so$"  # rdq's reader uses yaml's Python parser
    r"|dist-info/sboms/|/examples-1\.json(\.gz)?$"
)
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)


def build(arch: str, folder: Path, *, boto3: str = "runtime", python: str = PYTHON) -> Path:
    """The zip for one architecture. Raises RuntimeError when it is too large, or a package can't be
    downloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"rdq-functions-{arch}.zip"
    with tempfile.TemporaryDirectory(prefix="rdq-package-") as name:
        contents = Path(name) / "contents"
        _install(contents, Path(name) / "requirements.txt", arch, boto3=boto3, python=python)
        shutil.copytree(ROOT / "rdq_core", contents / "rdq_core", ignore=_not_for_functions)
        shutil.copytree(ROOT / "functions", contents / "functions")
        _zip(contents, target)
    if (size := target.stat().st_size) > MOST_BYTES:
        raise RuntimeError(f"{target.name} has {size} bytes; {MOST_BYTES} are the most")
    return target


def _not_for_functions(folder: str, names: list[str]) -> set[str]:
    """The command line and the test kit."""
    return {"cli", "testing"} & set(names) if Path(folder).name == "rdq_core" else set()


def _install(contents: Path, requirements: Path, arch: str, *, boto3: str, python: str) -> None:
    left_out = _OF_BOTO3 if boto3 == "runtime" else frozenset()
    requirements.write_text(
        "".join(_requirements(LOCK.read_text(encoding="utf-8"), left_out)), encoding="utf-8"
    )
    subprocess.run(  # noqa: S603 - our own uv, our own arguments
        [
            Path(sys.executable).with_name("uv"),
            *(
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary",
                ":all:",
            ),
            *("--python-platform", PLATFORMS[arch], "--python-version", python),
            *("--target", contents, "--requirement", requirements),
        ],
        check=True,
    )
    data = contents / "botocore" / "data"
    for service in data.iterdir() if data.is_dir() else ():
        if service.is_dir() and service.name not in _SERVICES:
            shutil.rmtree(service)


def _requirements(lock: str, left_out: frozenset[str]) -> Iterator[str]:
    """The lock file's entries without those left out.

    An entry includes the indented lines below it.
    """
    skips = False
    for line in lock.splitlines(keepends=True):
        if not line.startswith((" ", "#", "\n")):
            skips = re.split(r"[=\[ ;]", line, maxsplit=1)[0].lower() in left_out
        if not skips:
            yield line


def _zip(contents: Path, target: Path) -> None:
    files = sorted(file for file in contents.rglob("*") if file.is_file())
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as package:
        for file in files:
            name = file.relative_to(contents).as_posix()
            if _NOT_SHIPPED.search(name) is None:
                entry = zipfile.ZipInfo(name, _LONG_AGO)
                entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                package.writestr(entry, file.read_bytes())


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the zips that the arguments ask for."""
    parser = argparse.ArgumentParser(description="Build the zips of rdq's functions.")
    parser.add_argument("--boto3", choices=("runtime", "pinned"), default="runtime")
    parser.add_argument("--python", default=PYTHON)
    parser.add_argument("--arch", choices=sorted(PLATFORMS), action="append")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    told = parser.parse_args(arguments)
    for arch in told.arch or sorted(PLATFORMS):
        built = build(arch, told.into, boto3=told.boto3, python=told.python)
        print(f"{built}  {built.stat().st_size:,} bytes")  # noqa: T201 - this is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
