"""What is remembered of a session, and sessions in which nothing ran."""

import sqlite3
import subprocess


def rows(project, sql):
    with sqlite3.connect(project.root / ".matrix/history.sqlite") as c:
        return c.execute(sql).fetchall()


def test_outcomes_and_durations_are_kept(project):
    project.write(
        "test_a.py",
        "import time, pytest\ndef test_a(): time.sleep(0.05)\ndef test_b(): assert 0\ndef test_c(): pytest.skip()\n"
        "@pytest.fixture\ndef broken(): assert 0\ndef test_d(broken): pass\n@pytest.mark.xfail\ndef test_e(): assert 0\n",
    )
    assert project.pytest("--matrix-record", "-n", "2") == 1
    assert "outcomes kept" in project.out
    found = {
        test.split("::")[1]: (outcome, seconds)
        for test, outcome, seconds in rows(project, "SELECT test, outcome, seconds FROM test_results")
    }
    assert {t: o for t, (o, _) in found.items()} == {
        "test_a": "passed", "test_b": "failed", "test_c": "skipped", "test_d": "error", "test_e": "passed",
    }  # fmt: skip
    assert found["test_a"][1] >= 0.05


def test_a_commit_is_kept_only_where_no_file_differs_from_it(project):
    project.write("test_a.py", "def test_a(): pass\n")
    project.write(".gitignore", ".matrix\njunit.xml\n")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for args in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(project.root), *args], check=True)
    assert project.pytest("--matrix-record") == 0
    project.write("test_a.py", "def test_a(): assert 1\n")
    assert project.pytest("--matrix-record") == 0
    assert sorted(c is None for (c,) in rows(project, 'SELECT "commit" FROM runs')) == [False, True]


def test_no_test_ran_is_a_failure_where_that_is_asked_for(project):
    project.write("test_a.py", "import pytest\ndef test_a(): pytest.skip()\n")
    assert project.pytest() == 0
    assert project.pytest("--matrix-must-run") == 1
    assert "nothing_ran" in project.out
    assert project.pytest("--matrix-must-run", "-k", "other") == 1
    project.write("test_b.py", "def test_b(): pass\n")
    assert project.pytest("--matrix-must-run", "-n", "2") == 0


def test_unasked_the_plugin_leaves_pytest_as_it_is(project):
    project.write(
        "test_a.py",
        "import sys\ndef test_a():\n    assert not [m for m in sys.modules if m.startswith('matrix.') and m != 'matrix.pytest_plugin']\n",
    )
    assert project.pytest() == 0, project.out
    assert not (project.root / ".matrix").exists()
