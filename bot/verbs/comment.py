"""`bot comment RUN --dry-run`: print the pull-request comment for a run."""

from __future__ import annotations

from pathlib import Path

import click

from bot.comment import compose
from bot.record_board import board_of_record, lines_of_folder
from matrix.errors import ToolError, UsageError
from matrix.records import load

LANGUAGES = {"en": ("en",), "zh": ("zh",), "both": ("en", "zh")}


def find_record(run: str, start: Path) -> Path:
    """Return the run.json that RUN means: a file, a run folder, or the id of a run in the nearest `.matrix/runs`.

    Raises:
        UsageError: there is no such file, folder or run.

    """
    given = Path(run)
    if given.is_file():
        return given
    if (given / "run.json").is_file():
        return given / "run.json"
    for folder in (start, *start.parents):
        runs = folder / ".matrix" / "runs"
        if runs.is_dir():
            if (runs / run / "run.json").is_file():
                return runs / run / "run.json"
            ids = sorted(p.parent.name for p in runs.glob("*/run.json"))
            if run in ("last", "latest") and ids:
                return runs / ids[-1] / "run.json"
            raise UsageError(f"{run}: no such run in {runs}", f"the newest there: {', '.join(ids[-3:]) or 'none'}")
    raise UsageError(f"{run}: neither a run.json nor a run folder, and no .matrix/runs from here upward")


@click.command(name="comment")
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Print the comment instead of posting it.")
@click.option(
    "--lang", type=click.Choice(list(LANGUAGES)), default="en", show_default=True, help="Language of the comment."
)
@click.option(
    "-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
@click.option("--logs-url", metavar="URL", help="Where the run folder can be browsed, for links to log lines.")
@click.option(
    "--web", metavar="URL", help="The repository's page, for links to commits: https://github.com/OWNER/NAME."
)
def command(run: str, *, dry_run: bool, lang: str, output: Path | None, logs_url: str | None, web: str | None) -> None:
    r"""Print the comment for RUN: a run.json, a run folder, a run's id, or `last`.

    \b
    Example: bot comment last --dry-run --lang both -o comment.md
    """
    if not dry_run:
        raise UsageError(
            "only --dry-run prints from a run folder", "the bot itself posts comments: bot action, bot serve"
        )
    for option, url in (("--logs-url", logs_url), ("--web", web)):
        if url and not url.startswith(("https://", "http://")):
            raise UsageError(f"{option} {url}: not an http(s) address")
    path = find_record(run, Path.cwd())
    board = board_of_record(
        load(path),
        read=lines_of_folder(path.parent),
        base_url=logs_url,
        web=web.rstrip("/") if web else None,
    )
    text = compose(board, LANGUAGES[lang])
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise ToolError(f"{output}: {e.strerror}") from None
