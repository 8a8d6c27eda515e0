"""The command `bot`. Verbs are loaded only when they are called, so that help answers at once."""

from __future__ import annotations

import sys

import click

from matrix.errors import MatrixError
from matrix.help import EXIT_CODES, READER_GONE, LazyGroup, complain

# verb -> (module with a click command named `command`, one line of help)
VERBS: dict[str, tuple[str, str]] = {
    "comment": ("bot.verbs.comment", "Print the pull-request comment for a run: bot comment RUN --dry-run --lang both"),
    "action": ("bot.verbs.action", "Act on the event of a GitHub Actions workflow: bot action"),
    "serve": ("bot.verbs.serve", "Serve webhooks: bot serve --port 8080"),
    "score": ("bot.verbs.score", "Print how often diagnoses were right, as people said: bot score --since 30d"),
}


class _Verbs(LazyGroup):
    """The verbs of the table."""

    verbs = VERBS


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(package_name="dsv4-ci")
def cli() -> None:
    """Tell a pull request what failed first, whose it is and what to do."""


def main() -> None:
    """Entry point: maps errors to the exit codes of the contract."""
    stream = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as e:
        complain(e, "bot")
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except MatrixError as e:
        print(f"bot: {e.message}", file=sys.stderr)
        if e.advice:
            print(f"  {e.advice}", file=sys.stderr)
        sys.exit(e.exit_code)
    except SystemExit as e:  # click's own, if it put another stream in place: who read the output went away
        sys.exit(READER_GONE if sys.stdout is not stream else e.code)
    sys.exit(code if isinstance(code, int) else 0)
