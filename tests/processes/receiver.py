"""The oracle of the process tests: an HTTP server that can hold requests, and whose log no process of rdq can touch."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Request:
    task_id: str
    attempt_no: int
    worker: int
    body: bytes


class HoldingReceiver:
    """Answers every request, but from the `hold_from`-th on keeps those of one worker open: the one that sent it."""

    def __init__(self, *, hold_from: int) -> None:
        self._hold_from = hold_from
        self._changed = threading.Condition()
        self._log: list[Request] = []
        self._held: list[Request] = []
        self._is_open = False
        self.victim: int | None = None
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    @property
    def log(self) -> Sequence[Request]:
        with self._changed:
            return tuple(self._log)

    def wait_until_held(self, least: int, *, seconds: float) -> Sequence[Request]:
        """The requests of the victim that are open, as soon as there are that many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._held) >= least, seconds), f"{len(self._held)} are held"
            return tuple(self._held)

    def release(self) -> None:
        """Answer what is held, and hold nothing more."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def take(self, request: Request) -> None:
        """Log a request; return when it may be answered."""
        with self._changed:
            self._log.append(request)
            if len(self._log) >= self._hold_from and self.victim is None:
                self.victim = request.worker
            if request.worker == self.victim and not self._is_open:
                self._held.append(request)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_open, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The killed worker's connections are gone: that is the test."""


def _handler_of(receiver: HoldingReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            task_id, attempt_no = self.headers["X-Task"], int(self.headers["X-Attempt"])
            receiver.take(Request(task_id, attempt_no, int(self.headers["X-Worker"]), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's signature
            """The log is kept elsewhere."""

    return Handler
