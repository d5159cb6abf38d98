"""`rdq init`: the four tables on an engine of this machine."""

import os
from typing import Annotated

import typer

from rdq_core.cli.command import command
from rdq_core.cli.failures import Misuse
from rdq_core.cli.screen import Screen
from rdq_core.runtime.environment import is_local, tables_in


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "init")(init)


def init(
    screen: Screen,
    *,
    create_in_aws: Annotated[
        bool,
        typer.Option(
            "--create-in-aws", help="Create them in a real AWS account, where a template should."
        ),
    ] = False,
) -> None:
    """Create the tables on a local engine. Repeating it changes nothing."""
    from rdq_core.runtime.wiring import connect, dynamodb_client
    from rdq_core.stores.dynamodb.schema import create_tables

    if not is_local() and not create_in_aws:
        where = os.environ.get("AWS_ENDPOINT_URL") or "AWS itself"
        raise Misuse(
            f"AWS_ENDPOINT_URL does not point at this machine, so this would create tables in {where}",
            hint="rdq local serves one here, with its tables; or deploy the template, or say --create-in-aws",
        )
    tables = tables_in()
    client = dynamodb_client()
    create_tables(client, tables)
    connect(client, tables).cursor_key.key()  # so that those who may only read find one
    names = tables.as_env()
    document = {"tables": names, "endpoint": os.environ.get("AWS_ENDPOINT_URL")}
    screen.show(document, lambda: _tell(screen, names))


def _tell(screen: Screen, names: dict[str, str]) -> None:
    screen.line(
        f"the tables are ready on {os.environ.get('AWS_ENDPOINT_URL') or 'AWS'}; for programs that use them:"
    )
    for name, table in names.items():
        screen.line(f"export {name}={table}")
    screen.next("rdq queue apply queues.yaml")
