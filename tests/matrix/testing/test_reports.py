"""What machines read of a session: reportlog and junit carry cards, status and category of each item."""

import json

SPEC = """\
suites:
  s:
    jobs:
      card: {command: "echo 'ModuleNotFoundError: No module named x'; exit 1", cards: 2}
      good: {command: "true"}
"""


def reports(project):
    lines = [json.loads(line) for line in (project.root / "log.jsonl").read_text().splitlines()]
    calls = [r for r in lines if r["$report_type"] == "TestReport" and r["when"] == "call"]
    return {r["nodeid"]: (r["outcome"], dict(r["user_properties"])) for r in calls}


def test_jobs_and_tests_carry_their_cards_and_jobs_what_they_failed_of(project):
    project.write("matrix.yaml", SPEC)
    project.write("test_a.py", "import pytest\n@pytest.mark.cards(2)\ndef test_a(): pass\n")
    options = ("--report-log", "log.jsonl", "--matrix-cards", "H20:2", "-n", "2")
    assert project.pytest("test_a.py", *options, "--matrix") == 1, project.out
    seen = reports(project)
    assert set(seen) == {"matrix.yaml::card", "matrix.yaml::good", "test_a.py::test_a"}
    outcome, job = seen["matrix.yaml::card"]
    assert (outcome, job["cards"], job["status"]) == ("failed", "H20 #0,1", "failed")
    assert job["category"] == "module_not_found"
    assert job["log"].endswith("logs/card/1.log")
    assert seen["matrix.yaml::good"][0] == "passed"
    assert seen["matrix.yaml::good"][1]["category"] == ""
    assert seen["test_a.py::test_a"][1]["cards"].count("PRETENDED") == 2
    assert project.properties("card") == job
    assert project.properties("test_a") == seen["test_a.py::test_a"][1]


def test_a_worker_that_died_is_reported_with_the_category_of_its_death(project):
    project.write("test_a.py", "import ctypes\ndef test_a(): ctypes.string_at(0)\n")
    options = ("--report-log", "log.jsonl", "--matrix-limit", "60", "-n", "1")
    assert project.pytest(*options) == 1, project.out
    lines = [json.loads(line) for line in (project.root / "log.jsonl").read_text().splitlines()]
    (died,) = [r for r in lines if r.get("outcome") == "failed"]
    category = dict(died["user_properties"])["category"]
    assert category not in ("", "unknown")
    assert f"{category}: the worker died in test_a.py::test_a" in project.out
