"""The list of runs."""

import io

import pytest
from rich.console import Console

from matrix.report.listing import Listed, print_runs


@pytest.mark.parametrize("width", [80, 100, 200])
def test_what_people_copy_from_the_list_is_whole_however_narrow_the_terminal(runs, width):
    run = runs.run_of(*(runs.job(f"j{n}", s) for n, s in enumerate(("failed", "passed", "passed"))), commit="c" * 40)
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False, _environ={})
    print_runs(console, [Listed(run.id, run), Listed("20261202-000000-bad0", None)])
    first, *_ = lines = out.getvalue().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    row = lines[1]
    for part in (run.id, "failed", "2026-12-01 09:30 UTC", "1 failed"):
        assert part in row
    assert ("cccccccccc" in row) == ("Commit" in first) == (width >= 100)
    assert "…" not in out.getvalue()
    assert "20261202-000000-bad0" in lines[-1]
    assert "unreadable" in lines[-1]
