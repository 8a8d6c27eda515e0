"""`matrix bisect`: which commit broke a job, flaky or not."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import click


@click.command("bisect")
@click.argument("job")
@click.option("--good", required=True, metavar="REV", help="A commit at which the job was well.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="A commit at which it fails.")
@click.option("--spec", type=click.Path(exists=True, path_type=Path), help="The matrix file; else the nearest.")
@click.option("--cards", metavar="[MODEL:]N", help="Pretend so many cards, for hosts without.")
@click.option("--most-runs", type=click.IntRange(1), default=100, show_default=True, help="Give up after so many runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(job: str, good: str, bad: str, spec: Path | None, cards: str | None, most_runs: int, as_json: bool) -> None:
    """Find the first commit at which JOB fails as it does at the bad one: runs it, with what it needs, in worktrees.

    A job that fails by chance is run again until the odds favour one commit by 1000 to 1. Results are kept by commit.

    Example: matrix bisect qwen-sft --good v1.2 --bad main
    """
    from matrix.run import bisecting  # noqa: PLC0415 - keeps --help quick
    from matrix.spec.load import find  # noqa: PLC0415

    path = spec or find(Path.cwd())
    b = bisecting.begin(path.resolve().parent, path, job, good, bad, cards)
    n = len(b.commits)
    click.echo(f"{n} commits; plain bisection would take {math.log2(n):.1f} runs of a job that never flakes", err=True)
    found = bisecting.follow(b, lambda line: click.echo(line, err=True), most_runs)
    runs = sum(len(results) for results in b.results.values())
    evidence = {c: [{"said": r.said, "run": r.run} for r in rs] for c, rs in b.results.items()}
    if as_json:
        answer = {
            "schema": "bisect/1",
            "job": job,
            "commit": found,
            "or": b.untested,
            "signature": b.signature,
            "runs": runs,
            "log2": math.log2(n),
        }
        click.echo(json.dumps({**answer, "evidence": evidence}))
    elif found is None:
        click.echo(f"cannot tell after {runs} runs (log2 of {n} commits is {math.log2(n):.1f}): see {b.cache}")
    else:
        older = [c for c in [b.good, *b.commits[: b.commits.index(found)]] if c not in b.untested]
        click.echo(f"first bad commit: {found}  ({runs} runs; log2 of {n} commits is {math.log2(n):.1f})")
        if b.untested:
            click.echo(f"or one right before it that cannot be tested: {' '.join(b.untested)}")
        for commit in (older[-1], found):
            for r in b.results.get(commit, []):
                click.echo(f"  {commit[:10]} {r.said}: {r.run}" + (f": {r.text}" if r.said == "failed" else ""))
    sys.exit(0 if found else 1)
