"""The command `bot`."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dsv4-ci")
def cli() -> None:
    """Tell a pull request what failed first, whose it is and what to do."""


def main() -> None:
    """Entry point."""
    cli()
