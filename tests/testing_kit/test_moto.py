"""One DynamoDB action at a time, in this process and through the server."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.dynamodb.responses import DynamoHandler
from moto.moto_server.werkzeug_app import create_backend_app

from rdq_core.testing.moto import AtomicMotoServer, atomic_moto, make_moto_atomic
from tests.support.engines import Engine
from tests.testing_kit.tables import a_table, put_new

if TYPE_CHECKING:
    from flask import Flask
    from moto.backends import SERVICE_NAMES
    from mypy_boto3_dynamodb import DynamoDBClient


def winners(client: "DynamoDBClient", table: str, key: str, threads: int = 8) -> int:
    """How many of some threads, all let loose at once, win the write that only one can win."""
    barrier = threading.Barrier(threads)

    def race(_: int) -> bool:
        barrier.wait()
        try:
            put_new(client, table, key)
        except client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(race, range(threads)))


def test_threads_that_race_for_one_write_have_one_winner(moto: Engine) -> None:
    client = moto.dynamodb
    table = a_table(client)

    assert [winners(client, table, f"round {n}") for n in range(40)] == [1] * 40


def test_an_action_waits_until_the_one_before_it_is_done(
    moto: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[str] = []
    overlaps: list[list[str]] = []
    client = moto.dynamodb

    def list_tables(self: DynamoHandler) -> Any:
        inside.append("list_tables")
        threading.Event().wait(0.01)
        overlaps.append(list(inside))
        inside.pop()
        return "{}"

    monkeypatch.setattr(DynamoHandler, "list_tables", list_tables)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: client.list_tables(), range(4)))

    assert overlaps == [["list_tables"]] * 4


def test_making_moto_atomic_twice_changes_nothing() -> None:
    make_moto_atomic()
    once = DynamoHandler.call_action

    make_moto_atomic()

    assert DynamoHandler.call_action is once


def a_client(server: AtomicMotoServer) -> "DynamoDBClient":
    # A region that no other test uses: servers and mocks of one process show the same tables.
    return boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="sa-east-1")


def test_the_server_serves_threads_and_has_one_winner_too() -> None:
    with AtomicMotoServer() as server:
        client = a_client(server)
        table = a_table(client)

        assert [winners(client, table, f"round {n}") for n in range(10)] == [1] * 10
        client.delete_table(TableName=table)


def test_the_server_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with AtomicMotoServer() as server:
        a_client(server).list_tables()

    assert capfd.readouterr() == ("", "")


def test_the_server_is_built_before_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[SERVICE_NAMES] = []

    def recorded(name: "SERVICE_NAMES") -> "Flask":
        built.append(name)
        return create_backend_app(name)

    monkeypatch.setattr("rdq_core.testing.moto.create_backend_app", recorded)

    with AtomicMotoServer() as server:
        assert built == ["dynamodb"]
        a_client(server).list_tables()
    assert built == ["dynamodb"]


def test_a_stopped_server_frees_its_port() -> None:
    with AtomicMotoServer() as server:
        port = int(server.endpoint_url.rpartition(":")[2])

    with AtomicMotoServer(port) as again:
        assert again.endpoint_url == server.endpoint_url


def test_a_port_in_use_is_an_error_at_once() -> None:
    with AtomicMotoServer() as server, pytest.raises(OSError, match="in use"):
        AtomicMotoServer(int(server.endpoint_url.rpartition(":")[2]))


def test_a_mock_within_a_with_statement_is_usable_by_applications() -> None:
    with atomic_moto():
        client = boto3.client("dynamodb", region_name="af-south-1")
        assert a_table(client) in client.list_tables()["TableNames"]
        client.delete_table(TableName="things")
