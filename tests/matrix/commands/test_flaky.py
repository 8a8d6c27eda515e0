"""`matrix flaky`: a test that fails every other time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """\
from pathlib import Path
def test_now_and_then():
    n = Path("n"); n.write_text(n.read_text() + "x" if n.exists() else "x")
    assert len(n.read_text()) % 2
"""


@pytest.fixture
def matrix(tmp_path):
    (tmp_path / "test_a.py").write_text(TEST)
    (tmp_path / ".gitignore").write_text("n\n.matrix\n")
    for args in (["init", "-q"], ["add", "-A"], ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MATRIX_", "GITHUB_"))}
    env["PYTHONPATH"] = str(Path(__file__).parents[3])

    def run(*args):
        code = "from matrix.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=tmp_path, env=env
        )

    return run


def test_a_probe_tells_the_rate_and_is_remembered(matrix):
    done = matrix("flaky", "probe", "test_a.py::test_now_and_then", "--times", "3", "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["failed"], answer["ran"], answer["outcomes"]) == (1, 3, ["passed", "failed", "passed"])
    assert 0 < answer["low"] < 1 / 3 < answer["high"] < 1
    listed = json.loads(matrix("flaky", "list", "--json").stdout)["tests"]
    assert [(t["test"], t["failed"], t["ran"]) for t in listed] == [("test_a.py::test_now_and_then", 1, 3)]


def test_a_test_that_is_not_there_is_said(matrix):
    done = matrix("flaky", "probe", "test_a.py::test_other")
    assert done.returncode == 2
    assert "pytest finds no such test" in done.stderr


ENTRY = "{test: test_a.py, owner: ann, reason: r, issue: i, expires: 2099-01-01}"


def test_a_probe_sees_through_the_quarantine(matrix, tmp_path):
    (tmp_path / "test_a.py").write_text("def test_bad(): assert 0\n")
    (tmp_path / ".matrix").mkdir()
    (tmp_path / ".matrix/quarantine.yaml").write_text(f"quarantine: [{ENTRY}]\n")
    done = matrix("flaky", "probe", "test_a.py::test_bad", "--times", "2", "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["outcomes"] == ["failed", "failed"]


def test_a_test_that_never_ran_is_no_pass_and_its_reason_is_told(matrix, tmp_path):
    (tmp_path / "test_a.py").write_text("import pytest\n@pytest.mark.skip(reason='needs a card')\ndef test_s(): pass\n")
    done = matrix("flaky", "probe", "test_a.py::test_s", "--times", "2")
    assert done.returncode == 3
    assert "test_a.py::test_s ran in none of 2 runs" in done.stderr
    assert "needs a card" in done.stderr
    assert "0.0%" not in done.stdout
    assert not (tmp_path / ".matrix/history.sqlite").exists()
