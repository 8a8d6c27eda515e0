"""`matrix completion`: prints what makes a shell complete the command."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell, to be read at its start.

    Example: matrix completion bash > ~/.local/share/bash-completion/completions/matrix
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 -- keeps --help quick

    from matrix.cli import cli  # noqa: PLC0415

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "matrix", "_MATRIX_COMPLETE").source())
