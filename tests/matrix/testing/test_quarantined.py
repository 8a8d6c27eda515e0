"""Quarantine in pytest and in matrix runs."""

import html
import json

import pytest

from bot.comment import compose
from bot.record_board import board_of_record
from matrix.history.store import open_store
from matrix.records import load

ENTRY = "  - {{test: {test}, owner: alice, reason: port taken, issue: 'https://example.org/1', expires: {expires}}}\n"
TESTS = "def test_flaky(): assert 0, 'the port is taken'\ndef test_good(): pass\n"


def quarantine(project, test, expires="2099-01-01"):
    project.write(".matrix/quarantine.yaml", "quarantine:\n" + ENTRY.format(test=test, expires=expires))


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_quarantined_failure_is_shown_and_does_not_count(project, workers):
    project.write("tests/test_a.py", TESTS)
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.pytest(*workers) == 0, project.out
    assert "quarantined until 2099-01-01: port taken (alice, https://example.org/1)" in project.out
    assert "the port is taken" in project.out


def test_other_tests_still_fail(project):
    project.write("tests/test_a.py", TESTS + "def test_flaky_too(): assert 0\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.pytest() == 1
    assert project.cases() == {"test_flaky": "skipped", "test_good": "passed", "test_flaky_too": "failure"}


def test_an_entry_whose_time_is_over_counts_again_loudly(project):
    project.write("tests/test_a.py", TESTS)
    quarantine(project, "tests/test_a.py", "2020-01-01")
    assert project.pytest() == 1
    assert "QUARANTINE EXPIRED" in project.out
    assert ".matrix/quarantine.yaml:2" in project.out


def test_a_mistake_in_the_file_is_told_with_its_line(project):
    project.write("tests/test_a.py", TESTS)
    project.write(".matrix/quarantine.yaml", "quarantine:\n  - test: a\n    ownr: b\n")
    assert project.pytest() == 4
    assert "quarantine.yaml:3" in project.out
    assert "Traceback" not in project.out


def test_an_entry_for_a_job_covers_the_test_in_that_job_only(project):
    project.write("tests/test_a.py", TESTS)
    quarantine(project, "tests/test_a.py::test_flaky")
    file = project.root / ".matrix/quarantine.yaml"
    file.write_text(file.read_text().replace("owner:", "job: unit, owner:"))
    assert project.pytest(MATRIX_JOB="unit") == 0, project.out
    assert project.pytest(MATRIX_JOB="other") == 1


def run_record(project):
    (only,) = (project.root / ".matrix/runs").glob("*/run.json")
    return json.loads(only.read_text())


def test_a_matrix_run_counts_a_job_whose_failing_tests_are_all_quarantined_as_allowed(project):
    project.write("tests/test_a.py", TESTS)
    # A job's own environment may lack the plugin: then the runner applies the quarantine to what pytest says.
    without = '{targets: tests, args: ["-p", "no:matrix.pytest_plugin"]}'
    project.write("matrix.yaml", f"suites:\n  s:\n    jobs:\n      unit: {{pytest: {without}}}\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.matrix("run") == 0, project.out
    (job,) = run_record(project)["jobs"]
    assert (job["status"], job["allowed"]) == ("failed", True)
    assert "alice" in job["reason"]


def test_a_matrix_run_counts_a_job_with_another_failing_test(project):
    project.write("tests/test_a.py", TESTS + "def test_other(): assert 0\n")
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: tests}\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.matrix("run") == 1, project.out
    assert not run_record(project)["jobs"][0]["allowed"]


def test_a_matrix_run_refuses_a_quarantine_with_a_mistake_before_anything_runs(project):
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      a: {command: touch ran}\n")
    project.write(".matrix/quarantine.yaml", "quarantine:\n  - {test: a, owner: b}\n")
    assert project.matrix("run") == 2
    assert "quarantine.yaml:2" in project.out
    assert not (project.root / "ran").exists()


def test_a_matrix_run_tells_of_an_expired_entry_in_its_output_its_record_and_its_report_and_counts_the_failure(project):
    project.write("tests/test_a.py", TESTS)
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests}}\n")
    quarantine(project, "tests/test_a.py::test_flaky", "2020-01-01")
    assert project.matrix("run") == 1, project.out
    notice = ".matrix/quarantine.yaml:2: quarantine of tests/test_a.py::test_flaky expired on 2020-01-01"
    assert f"NOTICE {notice}" in project.out
    assert "alice: mend it" in project.out
    record = run_record(project)
    assert record["notices"][0].startswith(notice)
    (job,) = record["jobs"]
    assert (job["status"], job["allowed"]) == ("failed", False)
    assert [f["key"] for f in job["facts"]].count("quarantine_expired") == 1
    (report,) = (project.root / ".matrix/runs").glob("*/report.html")
    assert notice in report.read_text()


def test_an_expired_entry_is_told_also_when_its_test_passes(project):
    project.write("tests/test_a.py", "def test_good(): pass\n")
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests}}\n")
    quarantine(project, "tests/test_a.py::test_good", "2020-01-01")
    assert project.matrix("run") == 0, project.out
    assert "expired on 2020-01-01" in project.out
    assert "quarantine_expired" not in json.dumps(run_record(project)["jobs"])


ONLY = "def test_flaky(): assert 0, 'the port is taken'\n"
SAID = "1 quarantined failure: tests/test_a.py::test_flaky quarantined until 2099-01-01: port taken (alice, "


@pytest.mark.parametrize("tests", [TESTS, ONLY])
def test_a_failure_that_the_plugin_takes_out_is_told_by_terminal_record_report_and_comment(project, tests):
    project.write("tests/test_a.py", tests)
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests}}\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.matrix("run") == 0, project.out
    assert f"note unit: {SAID}" in project.out
    (job,) = run_record(project)["jobs"]
    assert (job["status"], job["failing_tests"]) == ("passed", [])
    (said,) = [f["value"] for f in job["facts"] if f["key"] == "quarantined"]
    assert said.startswith(SAID)
    (folder,) = (project.root / ".matrix/runs").iterdir()
    assert SAID in html.unescape((folder / "report.html").read_text())
    board = board_of_record(load(folder / "run.json"))
    text = compose(board, ("en", "zh"))
    assert "Does not count:" in text
    assert "1 quarantined failure" in text
    assert "不计入结果" in text


def test_a_quarantined_failure_beside_one_that_counts_is_named_too(project):
    project.write("tests/test_a.py", TESTS + "def test_other(): assert 0\n")
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests}}\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    assert project.matrix("run") == 1, project.out
    (job,) = run_record(project)["jobs"]
    assert job["failing_tests"] == ["tests/test_a.py::test_other"]
    assert [f["value"].startswith(SAID) for f in job["facts"] if f["key"] == "quarantined"] == [True]
    assert SAID in project.out


@pytest.mark.parametrize("args", [("run",), None])
def test_the_history_knows_a_quarantined_failure_as_one(project, args):
    project.write("tests/test_a.py", TESTS)
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      unit: {pytest: {targets: tests}}\n")
    quarantine(project, "tests/test_a.py::test_flaky")
    code = project.matrix(*args) if args else project.pytest("--matrix-record", "tests")
    assert code == 0, project.out
    url = f"sqlite:///{project.root}/.matrix/history.sqlite"
    with open_store(url).begin() as c:
        rows = c.exec_driver_sql("SELECT test, outcome FROM test_results").all()
        jobs = c.exec_driver_sql("SELECT status FROM jobs").scalars().all()
    assert dict(map(tuple, rows)) == {"tests/test_a.py::test_flaky": "failed", "tests/test_a.py::test_good": "passed"}
    assert jobs == ["passed"]
