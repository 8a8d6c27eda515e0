"""The command `bot`. Verbs are loaded only when they are called, so that help answers at once."""

from __future__ import annotations

import importlib
import sys

import click

from matrix.errors import MatrixError

# verb -> (module with a click command named `command`, one line of help)
VERBS: dict[str, tuple[str, str]] = {
    "comment": ("bot.verbs.comment", "Print the pull-request comment for a run: bot comment RUN --dry-run --lang both"),
    "action": ("bot.verbs.action", "Act on the event of a GitHub Actions workflow: bot action"),
    "serve": ("bot.verbs.serve", "Serve webhooks: bot serve --port 8080"),
    "score": ("bot.verbs.score", "Print how often diagnoses were right, as people said: bot score --since 30d"),
}


class LazyGroup(click.Group):
    """A click group that imports the module of a verb when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order in which the table lists them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of one verb."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(VERBS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing any of them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dsv4-ci")
def cli() -> None:
    """Tell a pull request what failed first, whose it is and what to do."""


def main() -> None:
    """Entry point: maps errors to the exit codes of the contract."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as e:
        e.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except MatrixError as e:
        print(f"bot: {e.message}", file=sys.stderr)
        if e.advice:
            print(f"  {e.advice}", file=sys.stderr)
        sys.exit(e.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)
