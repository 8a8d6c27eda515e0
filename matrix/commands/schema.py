"""`matrix schema`: the JSON Schema of matrix files, for editors."""

from __future__ import annotations

import click

from matrix.spec.json_schema import text


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of matrix files; editors complete and check a matrix.yaml by it.

    Example: matrix schema > matrix.schema.json
    """
    click.echo(text(), nl=False)
