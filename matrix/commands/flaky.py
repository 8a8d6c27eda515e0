"""`matrix flaky`: which tests fail now and then, and how often one does."""

from __future__ import annotations

import json
import sys

import click

from matrix.commands.history import store_option
from matrix.help import Group


@click.group("flaky", cls=Group)
def command() -> None:
    """List tests that fail now and then, or run one many times.

    Example: matrix flaky probe tests/test_a.py::test_b
    """


@command.command("list")
@click.option("--since", default="30d", show_default=True, help="A duration (7d) or a date (2026-12-01).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@store_option
def list_(since: str, as_json: bool, db: str | None) -> None:
    """List tests that both passed and failed on one commit, with the 95 % interval (Wilson) of their rate.

    Example: matrix flaky list --since 7d
    """
    from datetime import date  # noqa: PLC0415 -- keeps --help quick

    from matrix.commands.history import history_url, since_time  # noqa: PLC0415
    from matrix.history import quarantine  # noqa: PLC0415
    from matrix.history.queries import flaky_tests  # noqa: PLC0415
    from matrix.history.store import open_store  # noqa: PLC0415
    from matrix.run.folder import repository_root  # noqa: PLC0415

    today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
    kept = quarantine.load(repository_root())
    store = open_store(history_url(db))
    with store.begin() as c:
        found = flaky_tests(c, since=since_time(since))
    store.close()
    rows = [
        {"test": f.test, "failed": f.failed, "ran": f.ran, "commits": f.commits_both, "low": f.low, "high": f.high,
         "only_pull_request": f.only_pr, "quarantined": (entry.expires if (entry := kept.of(f.test, today)) else None)}
        for f in found
    ]  # fmt: skip
    expired = [{"test": e.test, "line": e.line, "expired": e.expires, "owner": e.owner} for e in kept.expired(today)]
    if as_json:
        click.echo(json.dumps({"schema": "flaky/1", "tests": rows, "expired": expired}, indent=1))
        return
    for r in rows:
        mark = f"  quarantined until {r['quarantined']}" if r["quarantined"] else ""
        mark += f"  only in pull request {r['only_pull_request']}" if r["only_pull_request"] else ""
        click.echo(f"{r['failed']} of {r['ran']} failed ({r['low']:.1%} to {r['high']:.1%})  {r['test']}{mark}")
    if not rows:
        click.echo(f"no test both passed and failed on one commit in {since}")
    for e in expired:
        click.echo(f".matrix/quarantine.yaml:{e['line']}: {e['test']}: expired on {e['expired']}, ask {e['owner']}")


@command.command("probe")
@click.argument("test")
@click.option("--times", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Run it so many times.")
@click.option("--limit", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds for each time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@store_option
def probe(test: str, times: int, limit: float, as_json: bool, db: str | None) -> None:
    """Run TEST, a pytest node id, many times, each in a process of its own; tell how often it failed and remember it.

    A quarantine does not hide its failures here. Exit code 0 when it always passed, 1 when it failed at least once,
    3 when it never ran.

    Example: matrix flaky probe tests/test_loss.py::test_resume --times 50
    """
    from matrix.commands.history import history_url  # noqa: PLC0415 -- keeps --help quick
    from matrix.errors import ToolError  # noqa: PLC0415
    from matrix.history.queries import wilson  # noqa: PLC0415
    from matrix.report.progress import left  # noqa: PLC0415
    from matrix.report.text import count  # noqa: PLC0415
    from matrix.run.folder import repository_root  # noqa: PLC0415
    from matrix.testing.probe import keep, probe_test  # noqa: PLC0415

    root = repository_root()
    tries = []
    for done in probe_test(test, times, limit):
        tries.append(done)
        if not as_json:
            rest = left(len(tries), times, sum(t.seconds for t in tries))
            said = f"{len(tries)} of {times}: {done.outcome} in {done.seconds:.1f} s"
            click.echo(", ".join(filter(None, [said, rest])), err=True)
    failed, ran = sum(t.bad for t in tries), sum(t.outcome != "skipped" for t in tries)
    low, high = wilson(failed, ran)
    # A try that was skipped is no outcome: remembered as one, it would read as a pass.
    run, warning = (
        keep(root, history_url(db), test, [t for t in tries if t.outcome != "skipped"]) if ran else (None, None)
    )
    if warning:
        click.echo(f"matrix: {warning}", err=True)
    if as_json:
        answer = {"schema": "probe/1", "test": test, "failed": failed, "ran": ran, "low": low, "high": high, "run": run}
        click.echo(json.dumps(answer | {"outcomes": [t.outcome for t in tries]}))
    elif ran:
        click.echo(f"{failed} of {ran} failed: {low:.1%} to {high:.1%} of the time, at 95 % confidence (Wilson)")
    if not ran:
        why = tries[-1].reason or "pytest says no reason"
        raise ToolError(f"{test} ran in none of {count(times, 'run')}: {why}", "nothing is remembered of it")
    sys.exit(1 if failed else 0)
