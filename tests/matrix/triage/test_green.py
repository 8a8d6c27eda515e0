"""A job that passed has no cause, whatever words it prints."""

import functools

import pytest
import yaml

from matrix.triage.ruleset import BUILTIN


@functools.cache
def descriptions() -> list[str]:
    """Every sentence of every rule's page: all the scary words there are."""
    pages = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(BUILTIN.glob("*.yaml"))]
    texts = [
        page[part]["en"]
        for page in pages
        for part in ("title", "what", "why", "false_positives", "fix")
        if part in page
    ]
    return [line for text in texts for line in text.splitlines() if line.strip()]


ENDS = {
    "GitHub": (["##[group]Run make", "##[endgroup]"], ["Post job cleanup.", "Cleaning up orphan processes"]),
    "GitLab": (["section_start:17:step_script\r\x1b[0K$ make"], ["Job succeeded"]),
    "Jenkins": (["[Pipeline] { (Test)", "+ make"], ["[Pipeline] }", "Finished: SUCCESS"]),
    "pytest": (["=== test session starts ===", "collected 5 items"], ["=== 5 passed in 0.10s ==="]),
}


@pytest.mark.parametrize("runner", ENDS)
@pytest.mark.parametrize("prefix", ["", "INFO note: ", "2026-12-01 01:02:03,456 WARNING trainer: "])
def test_every_scary_word_in_a_log_of_a_job_that_passed_names_no_cause(report, runner, prefix):
    head, tail = ENDS[runner]
    found = report("\n".join([*head, *(prefix + line for line in descriptions()), *tail]) + "\n")
    assert (found.status, found.causes) == ("passed", [])


def test_expected_failures_reruns_that_passed_and_logged_errors_are_no_failures(report):
    found = report(
        "=== test session starts ===\ncollected 3 items\n\n"
        "tests/test_a.py::test_error XFAIL                [ 33%]\n"
        "tests/test_a.py::test_port RERUN                 [ 66%]\n"
        "tests/test_a.py::test_port PASSED                [ 66%]\n"
        "tests/test_a.py::test_logs PASSED                [100%]\n\n"
        "=== PASSES ===\n___ test_logs ___\n--- Captured log call ---\nERROR root:t.py:3 CUDA error: out of memory\n"
        "=== 2 passed, 1 xfailed, 1 rerun in 0.12s ===\n"
    )
    assert (found.status, found.causes, found.failing_tests) == ("passed", [], [])
