"""`matrix baseline`: proposes new baselines, as changes to files of the repository."""

from __future__ import annotations

import json

import click

from matrix.help import Group


@click.group("baseline", cls=Group)
def command() -> None:
    """Work with the losses that jobs are held to.

    Example: matrix baseline update qwen-sft --from last
    """


@command.command("update")
@click.argument("job")
@click.option("--from", "run", required=True, metavar="RUN", help="The run to take the losses from (or `last`).")
@click.option("--dry-run", is_flag=True, help="Print the new file, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def update(job: str, run: str, dry_run: bool, as_json: bool) -> None:
    """Write the losses of JOB in RUN as its baseline for the card model it ran on. Commit the file to have it reviewed.

    Example: matrix baseline update qwen-sft --from last
    """
    from matrix.baseline.update import propose  # noqa: PLC0415 -- keeps --help quick
    from matrix.commands.running import find_run  # noqa: PLC0415
    from matrix.errors import UsageError  # noqa: PLC0415
    from matrix.files import replace  # noqa: PLC0415
    from matrix.records import load  # noqa: PLC0415
    from matrix.run.folder import RECORD  # noqa: PLC0415
    from matrix.spec.load import read  # noqa: PLC0415
    from matrix.spec.problems import did_you_mean  # noqa: PLC0415

    folder = find_run(run, None)
    record = load(folder / RECORD)
    spec = read(folder.parents[2] / record.spec.path)
    found = next((j for j in spec.jobs if j.name == job), None)
    ran = next((j for j in record.jobs if j.name == job), None)
    if found is None or ran is None:
        where = spec.path.name if found is None else f"run {record.id}"
        known = [j.name for j in (spec.jobs if found is None else record.jobs)]
        raise UsageError(f"no job {job!r} in {where}: {did_you_mean(job, known)}")
    proposal = propose(found, ran, record, root=spec.root, folder=folder)
    if not dry_run and not proposal.same:
        proposal.file.parent.mkdir(parents=True, exist_ok=True)
        replace(proposal.file, proposal.text)
    if as_json:
        document = {
            "schema": "baseline/1",
            "file": str(proposal.file),
            "written": not dry_run and not proposal.same,
            "new": proposal.new,
            "steps": proposal.steps,
            "changed": proposal.changed,
            "dropped": proposal.dropped,
            "first": proposal.first,
            "text": proposal.text,
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return
    if dry_run:
        click.echo(proposal.text, nl=False)
    click.echo(_sentence(proposal.file.name, proposal, dry_run=dry_run), err=dry_run)


def _sentence(name: str, proposal: object, *, dry_run: bool) -> str:
    from matrix.baseline.update import Proposal  # noqa: PLC0415
    from matrix.report.text import count  # noqa: PLC0415

    assert isinstance(proposal, Proposal)
    if proposal.same:
        return f"{name} says the same already ({count(proposal.steps, 'step')})"
    verb = "would be" if dry_run else "is"
    if proposal.new:
        what = f"{name} {verb} new, with {count(proposal.steps, 'step')}"
    else:
        what = f"{name} {verb} changed: {proposal.changed} of {count(proposal.steps, 'step')} differ"
        what += f", first {proposal.first}" if proposal.first else ""
        what += f"; {proposal.dropped} of the old losses are gone" if proposal.dropped else ""
    return what if dry_run else f"{what}\n  {proposal.file}: commit it, so that it is reviewed"
