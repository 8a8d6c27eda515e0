"""`matrix merge`: the results of many runners become one run, with its reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click


@click.command("merge")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNS...")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The merged run.")
@click.option("--spec", metavar="SPEC", help="The matrix that was run; the nearest when not given.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE",
              help="What `matrix plan --engine actions` printed: its jobs that no run has are errors.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run (schema run/1) as one document.")
def command(runs: tuple[Path, ...], out: Path, spec: str | None, plan_file: Path | None, as_json: bool) -> None:
    """Merge RUNS (run folders, or folders that hold some) into one run in DIR, with its reports.

    Example: matrix merge downloaded/ -o merged --plan plan.json
    """
    from matrix.commands import running  # noqa: PLC0415 -- keeps --help quick
    from matrix.errors import UsageError  # noqa: PLC0415
    from matrix.plan.graph import needed_jobs  # noqa: PLC0415
    from matrix.records import save  # noqa: PLC0415
    from matrix.run import merging, session  # noqa: PLC0415
    from matrix.run.folder import RECORD, new_id  # noqa: PLC0415
    from matrix.spec.load import read  # noqa: PLC0415

    if (out / RECORD).exists():
        raise UsageError(f"{out} holds a run already", "name another folder with -o")
    loaded = read(Path(spec) if spec else None)
    parts = merging.find_parts(runs)
    if parts[0].record.spec.sha256 != loaded.sha256:
        raise UsageError(f"{loaded.path} is not the matrix that was run", "merge at the commit of the runs")
    expected = _planned(plan_file) if plan_file else None
    jobs = {job.name: job for job in loaded.jobs}
    record, copies = merging.merge(parts, jobs, needed_jobs(loaded.jobs), new_id(), expected)
    out.mkdir(parents=True, exist_ok=True)
    merging.copy_logs(copies, out)
    save(record, out / RECORD)
    done = session.Session(loaded, out.resolve(), record, session.Options())
    session.report(done)
    sys.exit(running.finish(done, as_json=as_json))


def _planned(file: Path) -> dict[str, str]:
    """Return the jobs of a plan.

    Raises:
        UsageError: the file is none.

    """
    from matrix.errors import UsageError  # noqa: PLC0415

    try:
        plan = json.loads(file.read_bytes())
        return {cell["job"]: matrix["id"] for matrix in plan["matrices"] for cell in matrix["matrix"]["include"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UsageError(f"{file}: no plan: {e!r}", "write it with matrix plan --engine actions > plan.json") from None
