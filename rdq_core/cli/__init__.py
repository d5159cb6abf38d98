"""The `rdq` command."""

import sys
from typing import Final

_WRONG_USE: Final = 2
_INTERRUPTED: Final = 130


def main() -> None:
    """Run the process's command line and exit with its code."""
    try:
        import rich  # noqa: F401 - only to see whether it is installed
        import typer  # noqa: F401 - the same
    except ImportError as missing:
        sys.stderr.write(f"the rdq command needs {missing.name}: pip install 'rdq-core[cli]'\n")
        sys.exit(_WRONG_USE)
    try:
        from rdq_core.cli.app import run
    except KeyboardInterrupt:  # loading takes long enough for a Ctrl-C
        sys.exit(_INTERRUPTED)
    sys.exit(run(sys.argv[1:]))
