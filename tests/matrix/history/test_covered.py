import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from matrix.commands.history import command
from matrix.history.covered import FileCoverage, here, parse_diff, total

MATRIX = """
version: 1
suites:
  all:
    jobs:
      unit: {pytest: {targets: tests, args: [--cov=pkg]}, shards: 2, timeout: 60s}
"""
PKG = """def first():
    return 1


def second():
    return 2


def never():
    return 3
"""
TESTS = "import pytest\nfrom pkg import mod\n" + "".join(
    f"def test_{i}():\n    assert mod.{name}() == {value}\n"
    for i, (name, value) in enumerate([("first", 1), ("second", 2)] * 3)
)


def git(folder, *args):
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *args], check=True,
                   capture_output=True)  # fmt: skip


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("")
    (tmp_path / "pkg/mod.py").write_text(PKG.split("\n\n\n", maxsplit=1)[0] + "\n")
    (tmp_path / "tests/test_mod.py").write_text(TESTS)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "conftest.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    (tmp_path / "pkg/mod.py").write_text(PKG)
    git(tmp_path, "commit", "-qam", "change")
    return tmp_path


def test_shards_are_combined_and_the_changed_lines_counted(repository, monkeypatch):
    base = subprocess.check_output(["git", "-C", str(repository), "rev-parse", "HEAD~1"], text=True).strip()
    monkeypatch.setenv("MATRIX_BASE", base)
    monkeypatch.setenv("MATRIX_HISTORY", f"sqlite:///{repository}/h.sqlite")
    done = subprocess.run([sys.executable, "-m", "matrix", "run", "--cards", "0"], cwd=repository, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = repository.glob(".matrix/runs/*/coverage.json")
    document = json.loads(report.read_text())
    (mod,) = [f for f in document["files"] if f["file"] == "pkg/mod.py"]
    assert (mod["statements"], mod["covered"], mod["missing"]) == (6, 5, [10])
    assert (mod["changed"], mod["changed_covered"]) == (4, 3)
    assert "3 of 4 changed lines (75.0%)" in done.stderr
    asked = CliRunner().invoke(command, ["query", "--json", "--since", "2020-01-01"])
    kept = json.loads(asked.output)["coverage"]
    assert (kept["covered"], kept["changed lines covered"]) == (5, 3)


def test_paths_of_another_host_mean_the_file_with_the_longest_common_ending(tmp_path):
    (tmp_path / "src/a").mkdir(parents=True)
    for name in ("src/a/m.py", "m.py"):
        (tmp_path / name).write_text("")
    assert here("/elsewhere/r/r/src/a/m.py", tmp_path) == "src/a/m.py"
    assert here(r"D:\a\r\src\a\m.py", tmp_path) == "src/a/m.py"
    assert here("/other/site-packages/zz.py", tmp_path) is None
    assert here("/x/../m.py", tmp_path) is None


def test_a_diff_is_read_by_its_counts_whatever_its_lines_look_like():
    diff = """diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,0 +2,2 @@
+++ b/no_header.py
+@@ -1 +1 @@
@@ -9 +11 @@ def f
-old
+new
\\ No newline at end of file
diff --git a/gone.py b/gone.py
--- a/gone.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
"""
    assert parse_diff(diff) == {"a.py": {2, 3, 11}}


def test_totals_add_up_and_nothing_is_no_division():
    assert total([]).said() == "0 of 0 lines covered (none)"
    assert total([FileCoverage("a", 10, 5, 2, 1), FileCoverage("b", 10, 10)]).said() == (
        "15 of 20 lines covered (75.0%), 1 of 2 changed lines (50.0%)"
    )
