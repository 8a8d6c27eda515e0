import gzip
import json
import os
import queue
import threading

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from matrix.commands.history import command
from matrix.errors import UsageError
from matrix.history import schema
from matrix.history.importing import About, from_folder, from_junit
from matrix.history.importing_github import from_github
from matrix.history.store import open_store
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


def github_run(n, **kw):
    return {"id": n, "head_sha": f"sha{n}", "status": "completed", "conclusion": "failure", "created_at": "2026-12-01T09:00:00Z",
            "html_url": f"https://github.com/o/r/actions/runs/{n}"} | kw  # fmt: skip


def github_job(name, conclusion="failure", **kw):
    return {"name": name, "conclusion": conclusion, "status": "completed", "started_at": "2026-12-01T09:00:05Z"} | kw


def test_pages_documents_after_each_other_and_compressed_ones_are_all_read(tmp_path):
    pages = [{"workflow_runs": [github_run(n)]} for n in (1, 2)]
    (tmp_path / "runs-1.json").write_text("\n".join(map(json.dumps, pages)))
    (tmp_path / "runs-2.json.gz").write_bytes(gzip.compress(json.dumps([{"workflow_runs": [github_run(3)]}]).encode()))
    for n in (1, 2, 3):
        (tmp_path / f"jobs-{n}-1.json").write_text(json.dumps({"jobs": [github_job("a")]}))
        (tmp_path / f"jobs-{n}-2.json").write_text(json.dumps([github_job("b", "success")]))
    found = list(from_github(tmp_path))
    assert [r.run["id"] for r in found] == ["github-1", "github-2", "github-3"]
    assert all([j["name"] for j in r.jobs] == ["a", "b"] for r in found)
    assert found[0].run["repository"] == "o/r"


def test_runs_that_go_on_are_passed_over_and_a_run_without_jobs_or_with_a_fault_keeps_no_other_out(tmp_path):
    runs = [github_run(1), github_run(2, conclusion=None, status="in_progress"), github_run(3), github_run(4)]
    del runs[3]["head_sha"]
    (tmp_path / "runs.json").write_text(json.dumps({"workflow_runs": runs}))
    twins = [github_job("a"), github_job("a", "success"), github_job("late", None, status="queued")]
    for n in (1, 4):
        (tmp_path / f"jobs-{n}.json").write_text(json.dumps({"jobs": twins}))
    db = f"sqlite:///{tmp_path}/h.sqlite"
    done = CliRunner().invoke(command, ["import", "--db", db, "--github", str(tmp_path)])
    assert "1 run brought in" in done.output
    assert "run 3: no jobs-3.json" in done.output
    assert "'head_sha'" in done.exception.message
    (rows, *_) = from_github(tmp_path)
    assert [(j["name"], j["status"]) for j in rows.jobs] == [("a", "failed"), ("a #2", "passed")]


@pytest.mark.parametrize(
    ("case", "test", "outcome"),
    [
        ('<testcase classname="MathTest" name="Adds" status="run" result="completed" time="0."/>', "MathTest::Adds", "passed"),
        ('<testcase classname="Inst/MathTest" name="Adds/0"><failure/></testcase>', "Inst/MathTest::Adds/0", "failed"),
        ('<testcase classname="MathTest" name="DISABLED_x" status="notrun"/>', "MathTest::DISABLED_x", "skipped"),
        ('<testcase classname="shop basket" name="adds up" time="a"/>', "shop basket::adds up", "passed"),
        ('<testcase name="alone"/>', "alone", "passed"),
    ],
)  # fmt: skip
def test_results_of_gtest_and_jest_keep_their_names(tmp_path, case, test, outcome):
    path = tmp_path / "j.xml.gz"
    path.write_bytes(gzip.compress(f'<testsuites xmlns="urn:x"><testsuite>{case}</testsuite></testsuites>'.encode()))
    assert [(r.test, r.outcome) for r in read_junit(path)] == [(test, outcome)]


def test_a_cut_off_compressed_file_is_refused(tmp_path):
    path = tmp_path / "j.xml.gz"
    path.write_bytes(gzip.compress(JUNIT.encode())[:-9])
    with pytest.raises(UsageError, match=r"j\.xml\.gz"):
        read_junit(path)


def test_junit_files_of_two_jobs_with_one_name_are_two_runs_at_the_time_that_they_say(tmp_path):
    path, db = tmp_path / f"{'long' * 20}.xml", f"sqlite:///{tmp_path}/h.sqlite"
    path.write_text('<testsuite timestamp="2026-11-30T08:00:00"><testcase name="t"><failure/></testcase></testsuite>')
    for job in ("a", "b", "a"):
        matrix_history("import", "--db", db, "--junit", "--job", job, "--commit", "c" * 40, str(path))
        os.utime(path, (1, 1))
    store = open_store(db)
    with store.begin() as c:
        found = c.execute(select(schema.jobs.c.name, schema.jobs.c.started).order_by(schema.jobs.c.name)).all()
    store.close()
    assert [tuple(row) for row in found] == [("a", 1796025600.0), ("b", 1796025600.0)]


def test_a_folder_of_run_folders_is_imported_and_a_broken_one_keeps_no_other_out(tmp_path):
    for name in ("r1", "r2", "r3"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        save(run(name, 0, [attempt(0)]), tmp_path / "runs" / name / "run.json")
    broken, newer = (tmp_path / "runs" / name / "run.json" for name in ("r2", "r3"))
    broken.write_text('{"schema": "run/1", "id": "r2"}')
    document = json.loads(newer.read_text())
    document["jobs"][0]["attempts"][0]["of_a_later_version"] = {"x": 1}
    newer.write_text(json.dumps(document | {"tide": "high"}))
    db = f"sqlite:///{tmp_path}/h.sqlite"
    done = CliRunner().invoke(command, ["import", "--db", db, str(tmp_path / "runs")])
    assert "2 runs brought in" in done.output
    assert "r2/run.json: not a run/1 record: spec: field required" in done.exception.message


def test_a_failed_attempt_without_log_gets_a_cause_from_the_tests_that_failed(tmp_path):
    record = run("r1", 0, [attempt(0, failed="x")])
    record.jobs[0].attempts[0].causes = []
    (tmp_path / "logs/unit/1").mkdir(parents=True)
    (tmp_path / "logs/unit/1/junit.xml").write_text(JUNIT)
    save(record, tmp_path / "run.json")
    (cause,) = from_folder(tmp_path).causes
    assert cause["tests"] == ["tests/test_a.py::TestX::test_y"]
    assert cause["category"] == "unknown"


def test_long_names_of_tests_that_begin_alike_stay_two(tmp_path):
    cases = "".join(f'<testcase name="{"x" * 600}{n}"/>' for n in range(2))
    path = tmp_path / "j.xml"
    path.write_text(f"<testsuite>{cases}</testsuite>")
    found = from_junit(path, About("unit", "c")).test_results
    assert len({row["test"] for row in found}) == 2
    assert all(len(row["test"]) <= 500 for row in found)


def bring(db, folders, errors):
    done = CliRunner().invoke(command, ["import", "--db", db, *folders])
    if done.exit_code:
        errors.put(done.output + repr(done.exception))


def test_two_imports_of_the_same_runs_at_once_leave_each_once(tmp_path, url):
    folders = []
    for n in range(12):
        folder = tmp_path / f"r{n}"
        folder.mkdir()
        save(run(folder.name, n, [attempt(n)]), folder / "run.json")
        folders.append(str(folder))
    open_store(url).close()
    errors = queue.SimpleQueue()
    threads = [threading.Thread(target=bring, args=(url, folders, errors)) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    store = open_store(url)
    with store.begin() as c:
        assert c.execute(select(func.count()).select_from(schema.attempts)).scalar() == 12
    store.close()
    assert errors.empty()
