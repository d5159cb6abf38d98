"""The demo's webhook receiver: it alone decides what happens to a delivery, and its log is the
oracle.

rdq sees neither the table nor the log. An account's answers are given to each delivery in turn; the
last one repeats.
"""

import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

ACCEPT: Final = "accept"
CRASH: Final = "crash"
_SILENCE: Final = "silence"
_GARBAGE: Final = "garbage"
_LONGEST_SILENCE: Final = 10.0

Table = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One delivery as it arrived, and what it was answered."""

    task_id: str
    attempt_no: int
    account: str
    sha256: str
    answer: str


class Receiver:
    """An HTTP server on 127.0.0.1, in threads of this process. `mend` changes its table."""

    def __init__(self, today: Table, mended: Table) -> None:
        self._table = dict(today)
        self._mended = mended
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        self._log: list[Request] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], name="receiver", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def log(self) -> Sequence[Request]:
        """Every request so far, in the order of arrival."""
        with self._lock:
            return tuple(self._log)

    def mend(self) -> None:
        """Repair the endpoints that can be repaired."""
        with self._lock:
            self._table.update(self._mended)

    def answer_to(self, *, task_id: str, attempt_no: int, account: str, body: bytes) -> str:
        """Decide on a request, and write it down first of all."""
        with self._lock:
            answers = self._table.get(account, [ACCEPT])
            answer = answers[min(self._seen[task_id], len(answers) - 1)]
            self._seen[task_id] += 1
            self._log.append(
                Request(task_id, attempt_no, account, hashlib.sha256(body).hexdigest(), answer)
            )
            return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that was killed closes its connections: that is no news here."""


def _handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.answer_to(
                task_id=self.headers["Idempotency-Key"],
                attempt_no=int(self.headers["X-Attempt"]),
                account=self.path.rpartition("/")[2],
                body=body,
            )
            self._give(answer)

        def _give(self, answer: str) -> None:
            status, _, after = answer.partition(" ")
            if answer == _SILENCE:
                receiver.closing.wait(_LONGEST_SILENCE)
                self.connection.shutdown(socket.SHUT_RDWR)
            elif answer == _GARBAGE:
                self._send(200, b"<html>it works!</html>", {})
            elif answer in (ACCEPT, CRASH):
                receipt = json.dumps({"accepted": self.headers["Idempotency-Key"]}).encode()
                self._send(200, receipt, {"X-Demo-Crash": "1"} if answer == CRASH else {})
            else:
                self._send(int(status), b"", {"Retry-After": after} if after else {})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        # the library's signature
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Requests are told by the story, not line by line."""

    return Handler
