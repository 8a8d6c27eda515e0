"""`dsv4 claim`: check what a pull-request text says about its losses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dsv4.align import claim
from dsv4.errors import UsageError

MAX_BYTES = 4 << 20


@click.command()
@click.argument("text", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def command(text: Path, as_document: bool) -> int:
    """Check every claimed loss, md5 and count of TEXT (a file, or - for standard input).

    Exit 1 if a claim contradicts itself or its neighbours, or if there is none. A count is never proven by a text.

    Example: gh pr view 4623 --json body -q .body | dsv4 claim -
    """
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES) if str(text) == "-" else text.read_bytes()[:MAX_BYTES]
    except OSError as e:
        raise UsageError(f"{text}: {e.strerror}", "name a readable text file, or - for standard input") from None
    body = raw.decode("utf-8", errors="replace")
    claims = claim.check_text(body)
    if as_document:
        click.echo(json.dumps(claim.as_json(claims), indent=1))
    else:
        click.echo(claim.as_text(claims, reference_named=claim.names_reference(body)))
    if not claims:
        click.echo(f"dsv4: {text}: no claim found, such as `main_matches=200/200` or `final_loss=… md5=…`", err=True)
    return 0 if claims and all(c.verdict != "inconsistent" for c in claims) else 1
