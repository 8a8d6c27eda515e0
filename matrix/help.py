"""How the commands write their help: each verb with what it does and, on a line of its own, an example to copy."""

from __future__ import annotations

import difflib
import importlib
import sys
import textwrap
from collections.abc import Iterator, Mapping

import click

EXIT_CODES = (
    "Exit codes: 0 all well; 1 the work itself found failures; 2 wrong use or a bad file; "
    "3 the tool or its environment failed."
)

READER_GONE = 141  # as of programs that the signal for it ends: neither well, nor a failure that the work found
_WIDTH = 62  # of what a verb does: with the names before it, 80


class Group(click.Group):
    """A group that shows each of its commands with its example, uncut."""

    def _rows(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            what, _, example = " ".join((command.help or "").split() if command else []).partition(" Example: ")
            what = what.partition(". ")[0].rstrip(".")
            yield name, f"{what}: {example}" if example else what

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        root = str(ctx.find_root().info_name)
        with formatter.section("Commands"):
            formatter.write_dl([(name, _two_lines(text, root)) for name, text in self._rows(ctx)])


class LazyGroup(Group):
    """A group that imports the module of a verb when the verb is used. verb -> (module, `what it does: an example`)."""

    verbs: Mapping[str, tuple[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order in which the table lists them."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of one verb."""
        if cmd_name not in self.verbs:
            return None
        command = importlib.import_module(self.verbs[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; where there is none, say which one is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            near = difflib.get_close_matches(args[0], self.verbs, 1)
            if not near:
                raise
            raise click.UsageError(f"{e.message} Did you mean `{ctx.info_name} {near[0]}`?", ctx) from None

    def _rows(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        return ((name, text) for name, (_, text) in self.verbs.items())


def _two_lines(text: str, program: str) -> str:
    """Put the example on a line of its own, where nothing breaks it."""
    what, _, example = text.partition(f": {program} ")
    return "\n".join(["\b", *textwrap.wrap(what, _WIDTH), *([f"$ {program} {example}"] if example else [])])


def complain(e: click.ClickException, program: str) -> None:
    """Say in a line what is wrong with a command line, and in a second one where to look."""
    if isinstance(e, click.exceptions.NoArgsIsHelpError):
        e.show()
        return
    ctx = getattr(e, "ctx", None)
    path = ctx.command_path if ctx else program
    print(f"{path}: {e.format_message()}", file=sys.stderr)
    print(f"  {path} --help says how it is used", file=sys.stderr)
