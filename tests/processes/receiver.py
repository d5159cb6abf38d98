"""The oracle of the process tests: an HTTP server whose log no process of rdq can touch."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Receiver(ABC):
    """Listens on this machine alone, from its making to its end."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    @abstractmethod
    def answer(self, headers: Message, body: bytes) -> int:
        """The HTTP status of a request, when it may be sent. Called from a thread of the request's
        own.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The connections of killed workers are gone: that is the test."""


def _handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(receiver.answer(self.headers, body))
            self.end_headers()

        # the library's signature
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """The log is kept elsewhere."""

    return Handler


@dataclass(frozen=True, slots=True)
class Request:
    task_id: str
    attempt_no: int
    worker: int
    body: bytes


class HoldingReceiver(Receiver):
    """Answers every request, but from the `hold_from`-th on keeps those of one worker open: the one
    that sent it.
    """

    def __init__(self, *, hold_from: int) -> None:
        self._hold_from = hold_from
        self._changed = threading.Condition()
        self._log: list[Request] = []
        self._held: list[Request] = []
        self._is_open = False
        self.victim: int | None = None
        super().__init__()

    @property
    def log(self) -> Sequence[Request]:
        with self._changed:
            return tuple(self._log)

    def wait_until_held(self, least: int, *, seconds: float) -> Sequence[Request]:
        """The requests of the victim that are open, as soon as there are that many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._held) >= least, seconds), (
                f"{len(self._held)} are held"
            )
            return tuple(self._held)

    def release(self) -> None:
        """Answer what is held, and hold nothing more."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def answer(self, headers: Message, body: bytes) -> int:
        """Log the request."""
        request = Request(
            headers["X-Task"], int(headers["X-Attempt"]), int(headers["X-Worker"]), body
        )
        with self._changed:
            self._log.append(request)
            if len(self._log) >= self._hold_from and self.victim is None:
                self.victim = request.worker
            if request.worker == self.victim and not self._is_open:
                self._held.append(request)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_open, 60)
        return 204

    def __exit__(self, *exc_info: object) -> None:
        self.release()
        super().__exit__(*exc_info)


@dataclass(frozen=True, slots=True)
class Effect:
    """What one request did, or would have done: those that came after one with a newer fence were
    refused.
    """

    task_id: str
    attempt_no: int
    fence: int
    worker: int
    was_refused: bool


class FencedReceiver(Receiver):
    """Refuses a fencing token older than one it has seen of the same task, as what handlers change
    should.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        self._effects: list[Effect] = []
        super().__init__()

    @property
    def effects(self) -> Sequence[Effect]:
        """All of them, in the order in which they came."""
        with self._lock:
            return tuple(self._effects)

    def answer(self, headers: Message, body: bytes) -> int:
        """Have the effect unless it is stale."""
        task_id, fence = headers["X-Task"], int(headers["X-Fence"])
        with self._lock:
            newest = self._newest.get(task_id, 0)
            self._newest[task_id] = max(fence, newest)
            effect = Effect(
                task_id, int(headers["X-Attempt"]), fence, int(headers["X-Worker"]), fence < newest
            )
            self._effects.append(effect)
        return 409 if effect.was_refused else 204
