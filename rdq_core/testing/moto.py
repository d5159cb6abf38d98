"""moto as a store that several threads can use at once, in this process or as a server on the
loopback interface.

The invariant: one DynamoDB action at a time. moto itself reads, checks and writes in separate
steps, so threads that race for one conditional write can all win, and the rollback of a failed
transaction loses other threads' commits.

Batches of PartiQL statements are refused as an unknown operation: moto stops in the middle of them.

Needs `pip install rdq-core[testing]`.
"""

import functools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from moto import mock_aws
from moto.core.exceptions import JsonRESTError
from moto.dynamodb.responses import DynamoHandler
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

ACTIONS: Final = threading.RLock()
_SERVICE: Final = "dynamodb"


def make_moto_atomic() -> None:
    """Make moto's DynamoDB carry out one action at a time in this process, from now on.

    Calling it again has no effect, and it cannot be undone.
    """
    unlocked = DynamoHandler.call_action
    if hasattr(unlocked, "rdq_atomic"):
        return

    @functools.wraps(unlocked)
    def call_action(self: DynamoHandler) -> Any:
        with ACTIONS:
            return unlocked(self)

    call_action.rdq_atomic = True  # type: ignore[attr-defined]
    DynamoHandler.call_action = call_action  # type: ignore[method-assign]
    DynamoHandler.batch_execute_statement = _refuse_statements  # type: ignore[assignment,method-assign]


def _refuse_statements(_handler: DynamoHandler) -> Any:
    raise JsonRESTError("UnknownOperationException", "PartiQL is not available here")


@contextmanager
def atomic_moto() -> Iterator[None]:
    """Boto3 clients made inside it use an empty moto whose DynamoDB is safe between threads.

    Clients made before are not affected. Requests to an `endpoint_url` of this machine are still
    sent there.
    """
    make_moto_atomic()
    with mock_aws():
        yield


class AtomicMotoServer:
    """moto's server on 127.0.0.1, in a thread of this process, with its DynamoDB made safe for
    threads.

    Other processes reach it through `AWS_ENDPOINT_URL=server.endpoint_url`, with any credentials
    and region. Every server of a process, and `atomic_moto`, show the same tables: moto keeps one
    state a process. It serves as soon as it is made; use it in a `with` statement, or call `stop`
    when done.
    """

    def __init__(self, port: int = 0) -> None:
        """`port` 0 takes a free one. Raises OSError when the port is taken."""
        make_moto_atomic()
        application = DomainDispatcherApplication(create_backend_app)
        # Built on the first request it could take longer than a client waits.
        application.app_instances[_SERVICE] = create_backend_app(_SERVICE)
        # The socket is opened here because werkzeug, on a port that is taken, ends the process.
        with socket.create_server(("127.0.0.1", port)) as listening:
            self._server = make_server(
                "127.0.0.1",
                listening.getsockname()[1],
                application,
                threaded=True,
                request_handler=_QuietHandler,
                fd=listening.fileno(),
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], name="moto-server", daemon=True
        )
        self._thread.start()

    @property
    def endpoint_url(self) -> str:
        """Where it listens, as in `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._server.port}"

    def stop(self) -> None:
        """Answer no more requests and free the port. Stored data stays in this process."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class _QuietHandler(MotoRequestHandler):
    # A new connection for each request costs more than the request.
    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log no requests."""
