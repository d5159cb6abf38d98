"""`rdq local`: a local engine with empty tables, for as long as the command runs."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.output import Output
from rdq_core.errors import InputInvalid, Unavailable
from rdq_core.runtime.environment import ENDPOINT, LOCAL_TABLES

# A local engine accepts any credentials, but botocore sends no request without some.
LOCAL_ACCOUNT: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "eu-central-1",
}
# Settings of the user's that would lead botocore elsewhere.
_CONFLICTING: Final = (
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL_DYNAMODB",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "local")(local)


def local(
    output: Output,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 picks a free one.")
    ] = 8000,
) -> None:
    """Run a local engine with empty tables until Ctrl-C.

    It keeps everything in memory. Paste the printed lines into another terminal to use it there.
    """
    with until_signalled() as signalled, local_engine(port) as environment:
        output.show(environment, lambda: _print(output, environment))
        sys.stdout.flush()
        while not signalled.wait(1):
            pass


def _print(output: Output, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        output.line(f"export {name}={value}")


@contextmanager
def local_engine(port: int = 0) -> Iterator[dict[str, str]]:
    """Run an engine with empty tables; this process uses it meanwhile.

    Yields the environment variables that programs need to use it. `port` 0 picks a free one.
    Raises Unavailable if moto is not installed, InputInvalid if the port is taken.
    """
    with _server(port) as server:
        environment = {ENDPOINT: server.endpoint_url, **LOCAL_ACCOUNT, **LOCAL_TABLES.as_env()}
        with local_environment(environment):
            from rdq_core.runtime.wiring import dynamodb_client
            from rdq_core.stores.dynamodb.schema import create_tables

            create_tables(dynamodb_client(), LOCAL_TABLES)
            yield environment


def _server(port: int) -> Any:
    require_engine("a local engine")
    from rdq_core.testing.moto import AtomicMotoServer

    try:
        return AtomicMotoServer(port)
    except OSError as problem:
        raise InputInvalid(
            "port",
            f"cannot listen on {port}: {problem.strerror}",
            hint="--port 0 picks a free one",
        ) from None


def require_engine(what: str) -> None:
    """Raise Unavailable, with the command that installs it, if the local engine is missing."""
    try:
        import rdq_core.testing.moto  # noqa: F401 - only to see whether it can be imported
    except ImportError as missing:
        raise Unavailable(
            f"{what} needs {missing.name}, which is not installed",
            hint="pip install 'rdq-core[cli,testing]'",
        ) from None


@contextmanager
def local_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; remove proxies and the user's own AWS settings."""
    before = dict(os.environ)
    for name in _CONFLICTING:
        os.environ.pop(name, None)
    os.environ.update(values, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def until_signalled() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of ending the process."""
    signalled = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: signalled.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
