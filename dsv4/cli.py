"""The command `dsv4`. Verbs are loaded only when they are called, so that help answers at once."""

from __future__ import annotations

import importlib
import sys

import click

from dsv4.errors import Dsv4Error
from dsv4.numerics.env import prepare

# verb -> (module with a click command named `command`, one line of help)
VERBS: dict[str, tuple[str, str]] = {
    "train": ("dsv4.commands.train", "Train, and record every loss: dsv4 train tiny.yaml --tokens t.safetensors"),
    "launch": (
        "dsv4.commands.launch",
        "Train on several ranks: dsv4 launch --ranks 8 tiny.yaml --tokens t.safetensors",
    ),
    "fleet": ("dsv4.commands.fleet", "Train the same configuration in PaddleFleet: dsv4 fleet align8.yaml --dry-run"),
    "align": ("dsv4.commands.align", "Compare a loss record with a reference: dsv4 align run.csv losses_f64.csv"),
    "bisect": (
        "dsv4.commands.bisect",
        "Name the first differing tensor: dsv4 bisect a.yaml b.yaml --tokens t.npy",
    ),
    "check": ("dsv4.commands.check", "Compare the model with recorded runs: dsv4 check forward reference/dsv4"),
    "convert": (
        "dsv4.commands.convert",
        "Rename weights between layouts: dsv4 convert w.safetensors hf.safetensors --to hf --config tiny",
    ),
    "checkpoint": ("dsv4.commands.checkpoint", "Inspect and verify checkpoints: dsv4 checkpoint verify checkpoints"),
    "claim": ("dsv4.commands.claim", "Check the losses a pull-request text claims: dsv4 claim body.md"),
}

_READER_GONE = 141  # as of programs that the signal for it ends: neither well, nor a failure that the work found
_EXIT_CODES = "Exit codes: 0 all well; 1 losses differ or a check fails; 2 wrong use or a bad file; 3 the rest."


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
        with formatter.section("Commands"):
            formatter.write_dl([(name, _two_lines(text)) for name, (_, text) in VERBS.items()])


def _two_lines(text: str) -> str:
    """Put the example on a line of its own, where nothing breaks it."""
    what, _, example = text.partition(": dsv4 ")
    return f"\b\n{what}\n$ dsv4 {example}"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(package_name="dsv4-ci")
def cli() -> None:
    """Train DeepSeek-V4 in Paddle, and prove to the bit what the training did."""


def _complain(e: click.ClickException) -> None:
    """Say in a line what is wrong with a command line, and in a second one where to look."""
    ctx = getattr(e, "ctx", None)
    if isinstance(e, click.exceptions.NoArgsIsHelpError):
        e.show()
        return
    print(f"{ctx.command_path if ctx else 'dsv4'}: {e.format_message()}", file=sys.stderr)
    print(f"  {ctx.command_path if ctx else 'dsv4'} --help says how it is used", file=sys.stderr)


def main() -> None:
    """Entry point: maps errors to the exit codes of the contract."""
    prepare()  # before any verb imports Paddle
    stream = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as e:
        _complain(e)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except Dsv4Error as e:
        print(f"dsv4: {e.message}", file=sys.stderr)
        if e.advice:
            print(f"  {e.advice}", file=sys.stderr)
        sys.exit(e.exit_code)
    except SystemExit as e:  # click's own, if it put another stream in place: who read the output went away
        sys.exit(_READER_GONE if sys.stdout is not stream else e.code)
    except OSError as e:  # such as a full disk in the middle of a run
        print(f"dsv4: {e}", file=sys.stderr)
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)
