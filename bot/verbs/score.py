"""`bot score`: how often diagnoses were right, by what people said of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from matrix.history.feedback import Feedback, Precision, newest_word, precision

ENOUGH = 10  # votes; with fewer, the interval is wider than any use of it


def score(items: Sequence[Feedback]) -> dict[str, object]:
    """Count what was said, as one document."""
    words = newest_word(items)
    clear = [item for item in words if item.category]
    return {
        "schema": "score/1",
        "votes": len(words),
        "unclear": {
            "right": sum(item.right for item in words if not item.category),
            "wrong": sum(not item.right for item in words if not item.category),
        },
        "categories": [_entry(p) for p in precision(clear, "category")],
        "rules": [_entry(p) for p in precision(clear, "rule")],
    }


def _entry(p: Precision) -> dict[str, object]:
    return asdict(p) | {"precision": p.right / p.n, "enough": p.n >= ENOUGH}


def _table(heading: str, rows: Sequence[Precision]) -> list[str]:
    width = max(len(row.name) for row in rows)
    lines = [f"{heading:{max(width, len(heading))}}  right  of     precision  95 % interval"]
    for row in rows:
        few = "" if row.n >= ENOUGH else "  too few to say"
        name = f"{row.name:{max(width, len(heading))}}"
        lines.append(
            f"{name}  {row.right:5}  {row.n:5}  {row.right / row.n:9.0%}  {row.low:.0%} to {row.high:.0%}{few}"
        )
    return lines


@click.command(name="score")
@click.option("--since", metavar="WHEN", help="A date or a time before now: 2026-11-01, 30d.")
@click.option("--db", metavar="URL", help="The history; else $MATRIX_HISTORY, else the branch matrix-feedback.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(*, since: str | None, db: str | None, as_json: bool) -> None:
    """Print how often diagnoses were right, by category and by rule, as people said with 👍, 👎 and /wrong.

    Each person's last word on a diagnosis counts once. Votes on a comment with several diagnoses are told apart: nobody
    knows which of them was meant.

    Example: bot score --since 30d
    """
    from matrix.commands.history import since_time  # noqa: PLC0415 - keeps --help quick
    from matrix.history.feedback_source import read_feedback  # noqa: PLC0415

    url = db or os.environ.get("MATRIX_HISTORY") or None
    items = read_feedback(url, Path.cwd(), since=since_time(since) if since else 0.0)
    if as_json:
        click.echo(json.dumps(score(items), ensure_ascii=False))
        return
    words = newest_word(items)
    clear = [item for item in words if item.category]
    unclear = [item for item in words if not item.category]
    if clear:
        for heading, by in (("category", precision(clear, "category")), ("rule", precision(clear, "rule"))):
            click.echo("\n".join([*_table(heading, by), ""]) if by else "")
    if unclear:
        right = sum(item.right for item in unclear)
        click.echo(
            f"on comments with several diagnoses, counted to none of them: {right} 👍, {len(unclear) - right} 👎"
        )
    if len(clear) < ENOUGH:
        click.echo(f"{len(clear)} votes on single diagnoses: too few to say how often we are right")
