"""Procrastinate's side, on PostgreSQL."""

import os
import sys
from datetime import UTC, datetime

import marks
from procrastinate import App, PsycopgConnector

app = App(
    connector=PsycopgConnector(conninfo=os.environ["CONNINFO"]), import_paths=["procrastinate_app"]
)


@app.task(name="note")
async def note(due: float) -> None:
    marks.note(due)


if __name__ == "__main__":
    count, gap, delay = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    with app.open():
        for due in marks.due_times(count, gap, delay):
            at = datetime.fromtimestamp(due, UTC) if delay else None
            app.configure_task("note", schedule_at=at).defer(due=due)
