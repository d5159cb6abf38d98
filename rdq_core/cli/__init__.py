"""The `rdq` command."""

import sys
from typing import Final

_WRONG_USE: Final = 2
_INTERRUPTED: Final = 130


def main() -> None:
    """The entry point: runs the command line's arguments and exits with their code."""
    try:
        import rich  # noqa: F401 - is it here?
        import typer  # noqa: F401 - the same
    except ImportError as missing:
        sys.stderr.write(f"rdq's command line needs {missing.name}: pip install 'rdq-core[cli]'\n")
        sys.exit(_WRONG_USE)
    try:
        from rdq_core.cli.app import run
    except KeyboardInterrupt:  # loading takes long enough for somebody to change their mind
        sys.exit(_INTERRUPTED)
    sys.exit(run(sys.argv[1:]))
