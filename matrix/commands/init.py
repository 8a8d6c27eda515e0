"""`matrix init`: writes a first matrix from what a repository has."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.argument("folder", required=False, default=".", type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Print the matrix; write nothing.")
def command(folder: str, dry_run: bool) -> None:
    """Write a first matrix.yaml in FOLDER from what it has: tests, training scripts, configs.

    Asks nothing and overwrites nothing.

    Example: matrix init --dry-run
    """
    from matrix.errors import UsageError  # noqa: PLC0415 -- keeps --help quick
    from matrix.spec.document import parse, plain  # noqa: PLC0415
    from matrix.spec.load import FILE_NAME, read_bytes  # noqa: PLC0415
    from matrix.start.look import MAX_TEXT, look  # noqa: PLC0415
    from matrix.start.write import matrix_of  # noqa: PLC0415

    root = Path(folder).resolve()
    path = root / FILE_NAME
    if path.exists() and not dry_run:
        raise UsageError(f"{path} is there already, and is left as it is", "see what would be written: --dry-run")
    found = look(root)
    configs: dict[str, object] = {}
    for name in found.configs:
        raw = (root / name).read_bytes()[:MAX_TEXT]
        document = parse(raw)
        configs[name] = None if document.problems else plain(document.data)
    try:
        text = matrix_of(found, configs)
    except ValueError as e:
        raise UsageError(
            f"{root}: {e}: no tests, no training script, no Python file",
            "add a test such as tests/test_smoke.py with `def test_smoke(): assert 1 + 1 == 2`, then: matrix init",
        ) from None
    jobs, _ = read_bytes(text.encode(), FILE_NAME)  # what is written must be right
    if dry_run:
        click.echo(text, nl=False)
        return
    try:
        with path.open("x", encoding="utf-8") as f:
            f.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and is left as it is") from None
    most = max(job.cards.count for job in jobs)
    run = (
        "matrix run"
        if _cards_here() >= most
        else f"matrix run --cards {most} (this host has fewer: they are pretended)"
    )
    click.echo(f"{path}: {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}; next: matrix list, then {run}")


def _cards_here() -> int:
    from matrix.errors import MatrixError  # noqa: PLC0415
    from matrix.run.own_cards import find_cards  # noqa: PLC0415

    try:
        return len(find_cards(None, ()))
    except MatrixError:
        return 0  # `matrix doctor` says what is wrong with them
