"""Celery's side, on Redis. Late acknowledgement and no prefetch come closest to what rdq promises:
at least once.
"""

import os
import sys
from datetime import UTC, datetime

import marks
from celery import Celery

app = Celery("bench", broker=os.environ["BROKER"])
app.conf.update(task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=1)


@app.task(name="note")
def note(due: float) -> None:
    marks.note(due)


if __name__ == "__main__":
    count, gap, delay = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    for due in marks.due_times(count, gap, delay):
        note.apply_async((due,), eta=datetime.fromtimestamp(due, UTC) if delay else None)
