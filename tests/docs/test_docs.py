"""The documentation builds without a warning, and its commands do what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n)?```bash\n(?P<code>.*?)```", re.DOTALL)


def blocks(page):
    return [(m["mark"], m["code"]) for m in BLOCK.finditer(page.read_text())]


def test_every_block_of_commands_is_run_or_says_why_not():
    found = [(page.name, mark) for page in sorted(DOCS.glob("*.md")) for mark, _ in blocks(page)]
    assert found
    assert all(re.fullmatch(r"run|run: exit \d|not run: .{10,}", mark or "") for _, mark in found), found


@pytest.mark.parametrize("page", [p.name for p in sorted(DOCS.glob("*.md")) if "<!-- run" in p.read_text()])
def test_the_commands_of_a_page_work_one_after_the_other(page, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("MATRIX_", "GITHUB_", "PYTEST_"))}
    env = keep | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MATRIX_LEASE_DIR": str(tmp_path / "leases"),
        "HOME": str(tmp_path),
    }
    for mark, code in blocks(DOCS / page):
        if mark.startswith("not run"):
            continue
        wanted = int(mark.partition("exit ")[2] or 0)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code], cwd=work, env=env, capture_output=True, text=True
        )
        assert done.returncode == wanted, f"{code}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site/reference/commands/index.html").read_text()
    for verb in ("matrix run", "matrix doctor", "matrix serve"):
        assert verb in page
    assert "pretend_cards" in (tmp_path / "site/reference/keys/index.html").read_text()
