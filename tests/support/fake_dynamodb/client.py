"""The methods of a low-level boto3 client that rdq calls, on a database of this process."""

from typing import Any

from tests.support.fake_dynamodb.database import Answer, Database


class FakeClient:
    """What a store takes for a boto3 client. Any number of them may share a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_table(self, **definition: Any) -> None:
        """CreateTable."""
        self._database.create_table(**definition)

    def get_item(self, **request: Any) -> Answer:
        """GetItem."""
        return self._call("GetItem", request)

    def query(self, **request: Any) -> Answer:
        """Query."""
        return self._call("Query", request)

    def put_item(self, **request: Any) -> Answer:
        """PutItem."""
        return self._call("PutItem", request)

    def update_item(self, **request: Any) -> Answer:
        """UpdateItem."""
        return self._call("UpdateItem", request)

    def delete_item(self, **request: Any) -> Answer:
        """DeleteItem."""
        return self._call("DeleteItem", request)

    def batch_write_item(self, **request: Any) -> Answer:
        """BatchWriteItem."""
        return self._call("BatchWriteItem", request)

    def transact_write_items(self, **request: Any) -> Answer:
        """TransactWriteItems."""
        return self._call("TransactWriteItems", request)

    def _call(self, operation: str, request: dict[str, Any]) -> Answer:
        return self._database.call(operation, request)
