"""The receiver of the demo's webhooks. It alone decides what happens to a delivery.

rdq sees neither its table nor its log, so the log can be checked against rdq's records.
"""

import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import yaml

ACCEPT: Final = "accept"
CRASH: Final = "crash"
_SILENCE: Final = "silence"
_GARBAGE: Final = "garbage"
_MAX_SILENCE: Final = 10.0


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One delivery as it arrived, and how it was answered."""

    task_id: str
    attempt_no: int
    account: str
    sha256: str
    answer: str


class Receiver:
    """An HTTP server on 127.0.0.1, in threads of this process. `table` is like receiver.yaml."""

    def __init__(self, table: Path) -> None:
        tables = yaml.safe_load(table.read_text(encoding="utf-8"))
        self._answers: dict[str, Sequence[str]] = dict(tables["today"])
        self._repaired: Mapping[str, Sequence[str]] = tables["repaired"]
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._log: list[LoggedRequest] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler_for(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], name="receiver", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def log(self) -> Sequence[LoggedRequest]:
        """Every request so far, in the order of arrival."""
        with self._lock:
            return tuple(self._log)

    def repair(self) -> None:
        """Repair the endpoints that can be repaired."""
        with self._lock:
            self._answers.update(self._repaired)

    def answer(self, *, task_id: str, attempt_no: int, account: str, body: bytes) -> str:
        """Decide how to answer a request. It is logged before the answer is sent."""
        with self._lock:
            answers = self._answers.get(account, [ACCEPT])
            answer = answers[min(self._requests[task_id], len(answers) - 1)]
            self._requests[task_id] += 1
            sha256 = hashlib.sha256(body).hexdigest()
            self._log.append(LoggedRequest(task_id, attempt_no, account, sha256, answer))
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
        """Ignore broken connections: a killed worker leaves some."""


def _handler_for(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.answer(
                task_id=self.headers["Idempotency-Key"],
                attempt_no=int(self.headers["X-Attempt"]),
                account=self.path.rpartition("/")[2],
                body=body,
            )
            if answer == _SILENCE:
                receiver.closing.wait(_MAX_SILENCE)
                self.connection.shutdown(socket.SHUT_RDWR)
            elif answer == _GARBAGE:
                self._send(200, b"<html>it works!</html>", {})
            elif answer in (ACCEPT, CRASH):
                receipt = json.dumps({"accepted": self.headers["Idempotency-Key"]}).encode()
                self._send(200, receipt, {"X-Demo-Crash": "1"} if answer == CRASH else {})
            else:
                status, _, seconds = answer.partition(" ")
                self._send(int(status), b"", {"Retry-After": seconds} if seconds else {})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Print nothing: the log is for the check at the end."""

    return Handler
