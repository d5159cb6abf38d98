"""`rdq local`: an engine on this machine with the tables made, for as long as the command runs."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from rdq_core.cli.command import command
from rdq_core.cli.screen import Screen
from rdq_core.errors import InputInvalid, Unavailable
from rdq_core.runtime.environment import ENDPOINT, LOCAL_TABLES

LOCAL_ACCOUNT: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "eu-central-1",
}
"""What any engine of this machine is content with."""
_FOREIGN: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL_DYNAMODB")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "local")(local)


def local(
    screen: Screen,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes a free one.")
    ] = 8000,
) -> None:
    """Serve a local engine with its tables until Ctrl-C.

    It is empty and in memory. What is printed is for other terminals, which export it and then find
    the engine.
    """
    with until_signalled() as done, served(port) as environment:
        screen.show(environment, lambda: _tell(screen, environment))
        sys.stdout.flush()
        while not done.wait(1):
            pass


def _tell(screen: Screen, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        screen.line(f"export {name}={value}")


@contextmanager
def served(port: int = 0) -> Iterator[dict[str, str]]:
    """An engine with its tables, and the variables by which programs find it, which this process
    has meanwhile.

    `port` 0 takes a free one. Raises Unavailable when moto is not installed, InputInvalid for a
    port that is taken.
    """
    with _engine(port) as server:
        environment = {ENDPOINT: server.endpoint_url, **LOCAL_ACCOUNT, **LOCAL_TABLES.as_env()}
        with settings(environment):
            from rdq_core.runtime.wiring import dynamodb_client
            from rdq_core.stores.dynamodb.schema import create_tables

            create_tables(dynamodb_client(), LOCAL_TABLES)
            yield environment


def _engine(port: int) -> Any:
    require_engine("a local engine")
    from rdq_core.testing.moto import AtomicMotoServer

    try:
        return AtomicMotoServer(port)
    except OSError as taken:
        raise InputInvalid(
            "port", f"{port} can't be used: {taken.strerror}", hint="--port 0 takes a free one"
        ) from None


def require_engine(what: str) -> None:
    """Raises Unavailable, saying what to install, when the extra is missing."""
    try:
        import rdq_core.testing.moto  # noqa: F401 - is what it needs installed?
    except ImportError as missing:
        told = f"{what} needs {missing.name}, which is not installed"
        raise Unavailable(told, hint="pip install 'rdq-core[cli,testing]'") from None


@contextmanager
def settings(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, no proxy in between, and none of the user's own AWS settings,
    within.
    """
    before = dict(os.environ)
    for name in _FOREIGN:
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
    done = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: done.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield done
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
