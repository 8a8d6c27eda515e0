import json

import pytest
from click.testing import CliRunner

from matrix.commands.history import command
from matrix.errors import UsageError
from matrix.history.importing import from_folder, from_github
from matrix.junit_file import read_junit
from matrix.records import save
from tests.matrix.history.made import attempt, run

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestX" name="test_x[1]" time="0.5"/>
<testcase classname="tests.test_a.TestX" name="test_y"><failure>no</failure></testcase>
<testcase classname="tests.test_a.TestX" name="test_y"/>
<testcase classname="tests.test_a.TestX" name="test_z"><skipped/></testcase>
</testsuite></testsuites>"""


def matrix_history(*args):
    done = CliRunner().invoke(command, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_junit_results_count_a_test_once_at_its_worst(tmp_path):
    path = tmp_path / "j.xml"
    path.write_text(JUNIT)
    assert {r.test: r.outcome for r in read_junit(path)} == {
        "tests/test_a.py::TestX::test_x[1]": "passed",
        "tests/test_a.py::TestX::test_y": "failed",
        "tests/test_a.py::TestX::test_z": "skipped",
    }


@pytest.mark.parametrize("text", ["not xml", "<a>", '<!DOCTYPE x [<!ENTITY a "b">]><testsuite/>'])
def test_what_is_no_junit_file_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / "j.xml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"j\.xml"):
        read_junit(path)


def test_run_folders_are_imported_and_their_verdicts_follow_from_all_of_them(tmp_path):
    db = f"sqlite:///{tmp_path}/h.sqlite"
    folders = []
    runs = [run(f"base{i}", i - 20, [attempt(i - 20, failed="s1" if i > 8 else None)]) for i in range(12)]
    for record in [*runs, run("mine", 0, [attempt(0, failed="s1")], pr=3, author="bob", base="c-base11")]:
        folder = tmp_path / record.id
        folder.mkdir()
        save(record, folder / "run.json")
        folders.append(str(folder))
    assert "13 runs" in matrix_history("import", "--db", db, *folders)
    answer = json.loads(matrix_history("verdicts", "--db", db, "--json", folders[-1]))
    assert answer["verdicts"][0]["verdict"]["value"] == "base"
    asked = json.loads(matrix_history("query", "--db", db, "--json", "--since", "2026-11-01", "--signature", "s1"))
    assert (asked["times"], asked["pulls"]) == (4, 1)


def test_junit_files_of_other_tools_are_imported(tmp_path):
    path = tmp_path / "j.xml"
    path.write_text(JUNIT)
    db = f"sqlite:///{tmp_path}/h.sqlite"
    matrix_history("import", "--db", db, "--junit", "--job", "unit", "--commit", "abc", str(path))
    matrix_history("import", "--db", db, "--junit", "--job", "unit", "--commit", "abc", str(path))
    assert json.loads(matrix_history("query", "--db", db, "--json", "--since", "2020-01-01"))["runs"] == 1


def test_github_runs_become_attempts_of_jobs(tmp_path):
    github = {"id": 5, "name": "CI", "path": ".github/workflows/ci.yml", "head_sha": "abc", "head_branch": "f",
              "repository": {"full_name": "o/r"}, "actor": {"login": "ann"}, "pull_requests": [],
              "run_started_at": "2026-12-01T09:00:00Z", "updated_at": "2026-12-01T09:10:00Z", "conclusion": "failure"}  # fmt: skip
    jobs = [{"name": "unit", "run_attempt": n, "conclusion": c, "started_at": "2026-12-01T09:00:05Z",
             "completed_at": "2026-12-01T09:05:00Z", "html_url": "u"} for n, c in ((2, "success"), (1, "failure"))]  # fmt: skip
    (tmp_path / "runs.json").write_text(json.dumps({"workflow_runs": [github]}))
    (tmp_path / "jobs-5.json").write_text(json.dumps({"jobs": jobs}))
    (rows,) = from_github(tmp_path)
    assert [(a["n"], a["status"]) for a in rows.attempts] == [(1, "failed"), (2, "passed")]
    assert rows.jobs[0]["status"] == "passed"


def test_a_folder_without_the_api_files_says_what_to_save(tmp_path):
    with pytest.raises(UsageError) as e:
        list(from_github(tmp_path))
    assert "runs.json" in e.value.advice


def test_a_failed_attempt_without_causes_gets_them_from_its_log(tmp_path):
    record = run("r1", 0, [attempt(0, failed="x")])
    record.jobs[0].attempts[0].causes = []
    (tmp_path / "logs/unit").mkdir(parents=True)
    (tmp_path / "logs/unit/1.log").write_text(
        'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: no\n'
    )
    save(record, tmp_path / "run.json")
    (cause,) = from_folder(tmp_path).causes
    assert cause["line"] == 3
    assert cause["signature"]


def test_a_document_type_is_refused_in_every_encoding(tmp_path):
    path = tmp_path / "j.xml"
    bomb = '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE l [<!ENTITY a "x">]><testsuite><testcase name="&a;"/></testsuite>'
    path.write_bytes(bomb.encode("utf-16"))
    with pytest.raises(UsageError, match="document type"):
        read_junit(path)


@pytest.mark.parametrize("more", [["none.xml"], ["--started", "yesterday", "none.xml"]])
def test_a_junit_file_that_is_not_there_or_a_time_that_is_none_is_the_users_mistake(tmp_path, more):
    db = f"sqlite:///{tmp_path}/h.sqlite"
    done = CliRunner().invoke(command, ["import", "--db", db, "--junit", "--job", "u", "--commit", "c", *more])
    assert isinstance(done.exception, UsageError)
