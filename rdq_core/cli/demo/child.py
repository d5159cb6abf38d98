"""A worker of the demo, which ends when the demo does, however that came about.

Its standard input is a pipe that nobody writes to: it ends with the demo's process, by a SIGKILL
too.
"""

import os
import sys
import threading

from rdq_core.cli.app import run


def main() -> int:
    """Be `rdq worker` with these arguments."""
    threading.Thread(target=_end_with_the_demo, name="rdq-demo", daemon=True).start()
    return run(["worker", *sys.argv[1:]])


def _end_with_the_demo() -> None:
    os.read(0, 1)  # and not sys.stdin, whose lock would be in the way of an ordinary end
    os._exit(1)  # storage is gone as well: there is nothing to give back


if __name__ == "__main__":
    sys.exit(main())
