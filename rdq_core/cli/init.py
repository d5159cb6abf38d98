"""`rdq init`: creates the four tables on a local engine."""

import os
from typing import Annotated

import typer

from rdq_core.cli.command import command
from rdq_core.cli.failures import UsageError
from rdq_core.cli.output import Output
from rdq_core.runtime.environment import is_local, tables_in


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "init")(init)


def init(
    output: Output,
    *,
    create_in_aws: Annotated[
        bool,
        typer.Option("--create-in-aws", help="Create them in a real account; prefer a template."),
    ] = False,
) -> None:
    """Create the tables on a local engine. Existing tables stay as they are."""
    from rdq_core.runtime.wiring import connect, dynamodb_client
    from rdq_core.stores.dynamodb.schema import create_tables

    if not is_local() and not create_in_aws:
        where = os.environ.get("AWS_ENDPOINT_URL") or "AWS"
        raise UsageError(
            f"AWS_ENDPOINT_URL is not on this machine: this would create tables in {where}",
            hint="start a local engine with rdq local; for AWS deploy the template, "
            "or add --create-in-aws",
        )
    tables = tables_in()
    client = dynamodb_client()
    create_tables(client, tables)
    # Creates the key that cursors are signed with, because read-only operators cannot.
    connect(client, tables).cursor_key.key()
    names = tables.as_env()
    document = {"tables": names, "endpoint": os.environ.get("AWS_ENDPOINT_URL")}
    output.show(document, lambda: _print(output, names))


def _print(output: Output, names: dict[str, str]) -> None:
    where = os.environ.get("AWS_ENDPOINT_URL") or "AWS"
    output.line(f"the tables are ready on {where}; programs find them by:")
    for name, table in names.items():
        output.line(f"export {name}={table}")
    output.next("rdq queue apply queues.yaml")
