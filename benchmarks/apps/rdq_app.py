"""rdq's side: the worker's registry, and the submits. The process counts the HTTP requests that it
sends.
"""

import os
import sys
from datetime import UTC, datetime

import marks
from botocore.httpsession import URLLib3Session

from rdq_core import Registry
from rdq_core.client.rdq import Rdq

registry = Registry(queues=["bench"])
_send = URLLib3Session.send


def _counted(session: URLLib3Session, request: object) -> object:
    if "REQUESTS" in os.environ:
        target = os.open(os.environ["REQUESTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(target, b".")
        os.close(target)
    return _send(session, request)


URLLib3Session.send = _counted


@registry.handler("note")
def note(due: float) -> None:
    marks.note(due)


if __name__ == "__main__":
    count, gap, delay = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    rdq = Rdq.from_env()
    for due in marks.due_times(count, gap, delay):
        rdq.submit("bench", "note", due, run_at=datetime.fromtimestamp(due, UTC) if delay else None)
