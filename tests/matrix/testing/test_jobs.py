"""`pytest --matrix`: jobs as items, one run behind them."""

import json
import signal
import subprocess
import sys
import time

MATRIX = """\
suites:
  one:
    jobs:
      good: {command: "true", tags: quick}
      bad: {command: "echo 'ModuleNotFoundError: No module named x'; exit 1"}
      card: {command: "echo $CUDA_VISIBLE_DEVICES", cards: 1}
  chain:
    jobs:
      first: {command: "true", produces: {path: out/a, kind: files}, cards: 2}
      second: {command: "true", needs: first}
      allowed: {command: "false", allow_failure: {reason: known, until: 2099-01-01}}
"""


def runs(project):
    return sorted((project.root / ".matrix/runs").glob("*/run.json"))


def record(project):
    (only,) = runs(project)
    return {j["name"]: j for j in json.loads(only.read_text())["jobs"]}


def test_with_workers_the_outcomes_are_those_of_one_run_and_failures_show_their_cause(project):
    project.write("matrix.yaml", MATRIX)
    assert project.pytest("--matrix", "-n", "6", "--matrix-cards", "2") == 1, project.out
    cases = project.cases()
    assert cases == {
        "good": "passed", "bad": "failure", "card": "passed", "first": "failure", "second": "failure", "allowed": "skipped",
    }  # fmt: skip
    jobs = record(project)
    good = {n for n, j in jobs.items() if j["status"] == "passed"}
    assert good == {n for n, c in cases.items() if c == "passed"}
    assert "ModuleNotFoundError: No module named x" in project.out
    assert "blocked by first" in project.out
    assert "handoff_missing" in project.out
    assert "Traceback" not in project.out
    assert "jobs.py" not in project.out
    assert project.properties("bad")["category"] == jobs["bad"]["attempts"][0]["causes"][0]["category"]
    assert "#" in project.properties("card")["cards"]
    assert project.properties("second")["status"] == "blocked"


def test_only_what_is_selected_runs_and_node_ids_name_the_jobs(project):
    project.write("matrix.yaml", MATRIX)
    assert project.pytest("--matrix", "-m", "quick", "-v") == 0, project.out
    assert "matrix.yaml::good PASSED" in project.out
    assert {n for n, j in record(project).items() if j["status"] != "skipped"} == {"good"}


def test_a_job_is_chosen_by_its_node_id_by_k_or_by_the_cards_it_needs(project):
    project.write("matrix.yaml", MATRIX)
    project.pytest("--matrix", "--collect-only", "-q", "-m", "multi_card")
    assert "matrix.yaml::first" in project.out
    assert "5 deselected" in project.out
    assert project.pytest("--matrix=matrix.yaml::good") == 0, project.out
    assert project.cases() == {"good": "passed"}
    assert len(runs(project)) == 1


def test_the_last_failures_alone_are_run_again(project):
    project.write("pytest.ini", "[pytest]\n")
    project.write("matrix.yaml", MATRIX)
    assert project.pytest("--matrix", "-k", "good or bad") == 1
    assert project.pytest("--matrix", "--lf", "-n", "2") == 1
    assert project.cases() == {"bad": "failure"}


def test_tests_and_jobs_may_run_together(project):
    project.write("matrix.yaml", MATRIX)
    project.write("test_a.py", "def test_a(): pass\n")
    assert project.pytest("test_a.py", "-k", "good or test_a", "--matrix") == 0, project.out
    assert project.cases() == {"test_a": "passed", "good": "passed"}


def test_a_matrix_with_a_mistake_is_an_error_with_its_line(project):
    project.write("matrix.yaml", "suites:\n  a:\n    jobs:\n      b: {comand: x}\n")
    assert project.pytest("--matrix") != 0
    assert "matrix.yaml:4" in project.out
    assert "comand" in project.out


def test_what_is_no_matrix_file_is_said_with_what_to_write(project):
    project.write("matrix.yaml", MATRIX)
    project.write("tests/test_a.py", "def test_a(): pass\n")
    assert project.pytest("--matrix", "tests") == 4
    assert "write --matrix=matrix.yaml, or put --matrix last" in project.out


def test_a_run_that_cannot_begin_fails_its_items_with_the_reason(project):
    project.write("matrix.yaml", MATRIX)
    assert project.pytest("--matrix", "-k", "card") == 1
    assert "card asks for 1 card; this host has 0" in project.out
    assert "pretend some: --matrix-cards 2\n" in project.out, "what all of the chosen ones need"
    assert "- Failed: card asks for 1 card" in project.out, "the reason comes first, where the summary cuts"


def test_without_a_matrix_the_way_to_the_first_one_is_said(project):
    project.write("tests/test_a.py", "def test_a(): pass\n")
    assert project.pytest("--matrix") == 4
    assert "write a first one with `matrix init`, or name it: --matrix=PATH" in project.out


def test_a_segfault_and_a_job_that_holds_the_gil_are_told_by_their_cause(project):
    project.write(
        "tests/test_crash.py",
        "import ctypes\ndef test_fine(): pass\ndef test_crash(): ctypes.string_at(0)\n",
    )
    hang = "import ctypes; m = ctypes.create_string_buffer(64); p = ctypes.PyDLL(None)\nfor _ in 'ab': p.pthread_mutex_lock(m)"
    project.write("hang.py", hang)
    project.write(
        "matrix.yaml",
        "suites:\n  s:\n    jobs:\n"
        "      crash: {pytest: {targets: tests, workers: 2}}\n"
        "      hang: {command: python hang.py, timeout: 2s}\n",
    )
    assert project.pytest("--matrix", "-n", "2") == 1, project.out
    assert project.properties("hang")["category"] == "job_timeout"
    assert "hang.py" in project.out  # the stacks
    assert project.properties("crash")["category"] not in ("", "unknown")
    assert project.cases() == {"crash": "failure", "hang": "failure"}


def test_stopping_at_the_first_failure_ends_the_run(project):
    project.write(
        "matrix.yaml",
        "suites:\n  s:\n    jobs:\n      bad: {command: 'false'}\n      long: {command: sleep 60}\n",
    )
    assert project.pytest("--matrix", "-x") == 1
    assert record(project)["long"]["status"] == "cancelled"


def test_a_selection_that_fits_no_job_is_no_success_and_runs_nothing(project):
    project.write("matrix.yaml", MATRIX)
    assert project.pytest("--matrix", "-k", "nothing") == 5
    assert not (project.root / ".matrix/runs").exists()


def test_ctrl_c_cancels_the_run(project):
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      long: {command: sleep 60}\n")
    hears = ["env", "--default-signal=INT"]  # what a shell starts in the background ignores it
    with subprocess.Popen(
        [*hears, sys.executable, "-m", "pytest", "-p", "matrix.pytest_plugin", "--matrix"],
        cwd=project.root, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as session:  # fmt: skip
        while not any('"running"' in r.read_text().partition('"jobs"')[2] for r in runs(project)):
            assert session.poll() is None
            time.sleep(0.05)
        session.send_signal(signal.SIGINT)
        out, _ = session.communicate(timeout=60)
    assert session.returncode == 2, out
    assert record(project)["long"]["status"] == "cancelled"


def test_a_worker_that_dies_while_it_waits_is_not_taken_for_the_job(project):
    project.write("matrix.yaml", "suites:\n  s:\n    jobs:\n      a: {command: 'true'}\n      b: {command: 'true'}\n")
    project.write(
        "conftest.py",
        "import os\ndef pytest_runtest_setup(item):\n    if item.name == 'a' and hasattr(item.config, 'workerinput'): os._exit(1)\n",
    )
    assert project.pytest("--matrix", "-n", "2") == 1, project.out
    assert "the pytest worker that waited for a died; what became of the job: matrix show" in project.out
    assert project.cases()["b"] == "passed"
