"""What the commands that run jobs share: where a run is, what is shown of it, how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from matrix.errors import UsageError
from matrix.records import RunRecord, Status, dump
from matrix.report import github
from matrix.report.terminal import Live, summary
from matrix.run.folder import find
from matrix.run.session import Session
from matrix.run.state import Listener
from matrix.spec.load import find as find_spec


def refuse_with_resume(ctx: click.Context) -> None:
    """Refuse options that a run which has begun already decided.

    Raises:
        UsageError: one of them is given.

    """
    for name in ("only", "tags", "changed_since", "handoffs", "cards", "cpu_jobs"):
        if ctx.params.get(name):
            option = next(p.opts[0] for p in ctx.command.params if p.name == name)
            raise UsageError(f"{option} together with --resume: the run has that from its start", "leave it out")


def find_run(text: str, spec: str | None) -> Path:
    """Find the folder of a run, of the repository that SPEC or the working folder is in."""
    if "/" in text and Path(text).exists():
        return find(Path(), text)
    path = Path(spec) if spec else find_spec(Path.cwd())
    return find(path if path.is_dir() else path.parent, text)


@contextmanager
def shown(record: RunRecord, expected: Mapping[str, float]) -> Iterator[Listener]:
    """Show a run on standard error while it goes on."""
    with Live(record, expected=expected) as live:
        yield lambda _: live.update()


def finish(session: Session, *, as_json: bool) -> int:
    """Say how a run ended; return the exit code of the contract."""
    record = session.record
    if as_json:
        click.echo(dump(record), nl=False)
    else:
        summary(record, session.folder)
        github.write(record, session.folder)
    return {Status.PASSED: 0, Status.ERROR: 3}.get(record.status, 1)
