"""A small, strict DynamoDB in this process: exactly the requests that rdq sends, atomic, fast, with
a lagging index.

    database = Database()
    database.create_table(**definition)
    client = FakeClient(database)          # what a store takes for a low-level boto3 client

syntax.py      expressions: parsed once, refused when rdq does not send the like
tables.py      items, in order of their keys, and index entries with their past
database.py    the operations, each one atomic
refusals.py    errors, in the form in which botocore raises them
client.py      the methods of a boto3 client
"""

from tests.support.fake_dynamodb.client import FakeClient
from tests.support.fake_dynamodb.database import Database
from tests.support.fake_dynamodb.tables import Change

__all__ = ["Change", "Database", "FakeClient"]
