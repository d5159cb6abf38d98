"""The storage engines that tests run on: atomic moto in this process, and ministack.

A test that asks for `engine` runs once on each; one that asks for `moto` or `ministack` on that
one. Each gets an AWS that is empty and its own, without tables: `create_tables` of
`rdq_core.stores.dynamodb.schema` makes them.
"""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import boto3
import pytest
from botocore.config import Config
from moto.backends import get_backend

from rdq_core.testing.moto import atomic_moto
from tests.support.fake_dynamodb import Database, FakeClient
from tests.support.ministack import Ministack

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION: Final = "eu-central-1"
SERVICES: Final = ("dynamodb", "s3")

# One session, as each reads its services' models anew: 50 ms a client instead of 3.
_session = boto3.session.Session()
_making = threading.Lock()

# ministack takes an access key of twelve digits for an account number: an empty account a test.
_accounts = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Engine:
    """An empty AWS of one test's own. `endpoint_url` is None where only this process can reach
    it.
    """

    name: Literal["moto", "ministack", "double"]
    access_key: str = "test"
    endpoint_url: str | None = None

    @property
    def dynamodb(self) -> "DynamoDBClient":
        """A new DynamoDB client that tries once."""
        client: DynamoDBClient = self.client("dynamodb")
        return client

    def client(self, service: str, *, attempts: int = 1, read_timeout: float = 60) -> Any:
        """A new boto3 client. botocore tries once by default: a scripted fault then
        reaches the caller. It waits `read_timeout` seconds for an answer.
        """
        with _making:  # clients may be shared by threads, but not made by several at once
            return _session.client(  # type: ignore[call-overload]
                service,
                endpoint_url=self.endpoint_url,
                region_name=REGION,
                aws_access_key_id=self.access_key,
                aws_secret_access_key="test",
                config=Config(
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    read_timeout=read_timeout,
                ),
            )

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to reach the engine. Raises RuntimeError
        where none can.
        """
        if self.endpoint_url is None:
            raise RuntimeError(f"{self.name} lives in this process alone")
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
        }


@dataclass(frozen=True, slots=True)
class Double(Engine):
    """The strict double of this process: DynamoDB alone, and no more of it than rdq uses. It can't
    be disturbed.
    """

    database: Database = field(default_factory=Database)

    def client(self, service: str, *, attempts: int = 1, read_timeout: float = 60) -> Any:
        """A client on the double, whatever the number of attempts: it never fails."""
        if service != "dynamodb":
            raise RuntimeError(f"the double does not play {service}")
        return FakeClient(self.database)

    @property
    def dynamodb(self) -> "DynamoDBClient":
        """A new client on the double."""
        return cast("DynamoDBClient", self.client("dynamodb"))


@pytest.fixture(scope="session")
def moto_session() -> Iterator[None]:
    """One mock a session: a new one for each test would cost ten times as much as its tables."""
    with atomic_moto():
        yield


@pytest.fixture(scope="session")
def ministack_server() -> Iterator[Ministack]:
    """The session's ministack, started for the first test that needs it. One that can't start fails
    the test.
    """
    with Ministack() as server:
        yield server


@pytest.fixture
def moto(moto_session: None) -> Engine:
    """The atomic moto of this process, emptied."""
    for service in SERVICES:
        get_backend(service).reset()
    return Engine("moto")


@pytest.fixture
def double() -> Engine:
    """A new double."""
    return Double("double")


@pytest.fixture
def ministack(ministack_server: Ministack) -> Engine:
    """ministack, in a new account. Mark the test with `ministack` too."""
    return Engine(
        "ministack",
        access_key=f"{next(_accounts):012d}",
        endpoint_url=ministack_server.endpoint_url,
    )


@pytest.fixture(params=["moto", pytest.param("ministack", marks=pytest.mark.ministack)])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    chosen: Engine = request.getfixturevalue(request.param)
    return chosen
