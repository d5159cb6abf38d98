"""A Lambda function in a process of its own, behind AWS's runtime client and a small runtime API on
this machine.

What AWS's runtime makes of an exception, of a client context and of a process that ends is then
AWS's own doing. Source: the Lambda Developer Guide, "Using the Lambda runtime API for custom
runtimes".
"""

import base64
import io
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
_PREFIX: Final = "/2018-06-01/runtime/"
_PATIENCE: Final = 60.0
_GLANCE: Final = 0.1
_FUNCTION_ARN: Final = "arn:aws:lambda:eu-central-1:1:function:charge-fn"


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A function that has ended no longer listens: that is what is tried."""


class RealFunction:
    """One function, as a Lambda client sees it: `invoke` of any name calls it. Its code is a module
    `charge`.
    """

    def __init__(
        self,
        folder: Path,
        code: str,
        *,
        seconds: float = 30,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        (folder / "charge.py").write_text(code, encoding="utf-8")
        self._folder = folder
        self._seconds = seconds
        self._environ = dict(environ or {})
        self._requests: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers: queue.Queue[tuple[bytes, bool]] = queue.Queue()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="runtime-api", daemon=True).start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._end()
        self._requests.put({})  # whoever waits for an invocation
        self._server.shutdown()
        self._server.server_close()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def invoke(self, **request: Any) -> dict[str, Any]:
        """boto3's `Lambda.Client.invoke`. A process that ends is told as Lambda tells it, and
        started anew.
        """
        if not self.is_running:
            self._process = self._start()
        self._requests.put(request)
        payload, failed = self._answer()
        answer: dict[str, Any] = {"StatusCode": 200, "Payload": io.BytesIO(payload)}
        return answer | {"FunctionError": "Unhandled"} if failed else answer

    def _answer(self) -> tuple[bytes, bool]:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            try:
                return self._answers.get(timeout=_GLANCE)
            except queue.Empty:
                if not self.is_running and self._answers.empty():
                    told = {
                        "errorType": "Runtime.ExitError",
                        "errorMessage": "Error: Runtime exited",
                    }
                    return json.dumps(told).encode(), True
        raise AssertionError("the function never answered")

    def _start(self) -> subprocess.Popen[bytes]:
        host, port = self._server.server_address[:2]
        environ = {
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self._folder}",
            "AWS_LAMBDA_RUNTIME_API": f"{host!s}:{port}",
            "AWS_LAMBDA_FUNCTION_NAME": "charge-fn",
            "LAMBDA_TASK_ROOT": str(self._folder),
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            **self._environ,
        }
        command = [sys.executable, "-m", "awslambdaric", "charge.handler"]
        return subprocess.Popen(command, cwd=self._folder, env=environ, stdout=subprocess.DEVNULL)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        function = self

        class Api(BaseHTTPRequestHandler):
            """What the runtime client asks."""

            def do_GET(self) -> None:
                request = function._requests.get()
                headers = {
                    "Lambda-Runtime-Aws-Request-Id": "8476a536-e9f4-11e8-9739-2dfe598c3fcd",
                    "Lambda-Runtime-Deadline-Ms": str(
                        int((time.time() + function._seconds) * 1000)
                    ),
                    "Lambda-Runtime-Invoked-Function-Arn": _FUNCTION_ARN,
                    # The client dies of a response without one.
                    "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Sampled=0",
                    "Content-Type": "application/json",
                }
                if "ClientContext" in request:
                    headers["Lambda-Runtime-Client-Context"] = base64.b64decode(
                        request["ClientContext"]
                    ).decode()
                self._send(200, request.get("Payload", b"{}"), headers)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._send(202, b"{}", {})
                function._answers.put((body, self.path.endswith("/error")))

            def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Nothing."""

        return Api
