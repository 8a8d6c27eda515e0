"""What the commands that run jobs share: where a run is, what is shown of it, how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from matrix.errors import UsageError
from matrix.records import JobRecord, Status
from matrix.run.folder import find
from matrix.run.loop import Listener
from matrix.run.session import Session
from matrix.spec.load import FILE_NAME
from matrix.spec.load import find as find_spec


def split_targets(targets: Sequence[str], *, names_allowed: bool) -> tuple[str | None, list[str]]:
    """Tell the matrix file from names that follow --only: a file or a folder with a matrix is no name.

    Raises:
        UsageError: more than one file, or a name where none is asked for.

    """
    specs = [t for t in targets if t.endswith((".yaml", ".yml")) or (Path(t) / FILE_NAME).is_file() or "/" in t]
    names = [t for t in targets if t not in specs]
    if names and not names_allowed:
        if specs or len(names) > 1:
            raise UsageError(f"{names[-1]!r} is no matrix file", f"to choose jobs, write --only {' '.join(names)}")
        return names[0], []
    if len(specs) > 1:
        raise UsageError(f"two matrix files: {specs[0]} and {specs[1]}", "name one")
    return (specs[0] if specs else None), names


def parse_handoffs(texts: Sequence[str]) -> dict[str, str]:
    """Read NAME=PATH of --handoff; paths become absolute.

    Raises:
        UsageError: not of that form.

    """
    found = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not (name and sign and path):
            raise UsageError(f"--handoff {text}: write NAME=PATH, such as --handoff qwen-pt=output/qwen-pt")
        found[name] = str(Path(path).expanduser().absolute())
    return found


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


def listener(*, as_json: bool) -> Callable[[Session], Listener]:
    """Return what tells of each change of a job; with --json it speaks on standard error."""

    def begin(session: Session) -> Listener:
        click.echo(f"run {session.record.id}", err=as_json)

        def changed(job: JobRecord) -> None:
            click.echo(f"{job.name}: {job.status}" + (f" ({job.reason})" if job.reason else ""), err=as_json)

        return changed

    return begin


def finish(session: Session, *, as_json: bool) -> int:
    """Say how a run ended; return the exit code of the contract."""
    record = session.record
    if as_json:
        sys.stdout.write(record.model_dump_json(indent=1) + "\n")
    else:
        click.echo(f"{record.status}: {session.folder}")
    return {Status.PASSED: 0, Status.ERROR: 3}.get(record.status, 1)
