"""Logs of other software, in the styles of six CI services: each is diagnosed as it is."""

import json
from pathlib import Path

import pytest

from matrix.triage.diagnosis import diagnose

DATA = Path(__file__).parents[2] / "data/triage/foreign"
LABELS = [json.loads(line) for line in (DATA / "labels.jsonl").read_text().splitlines()]
# Named by no rule yet; `unknown` at the line where a reader should begin is what they get.
UNNAMED = {"ctest-fail", "typer-value"}


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["id"])
def test_a_foreign_log_is_diagnosed_or_left_unnamed(label):
    report = diagnose(str(DATA / "logs" / f"{label['id']}.log.gz"))
    if label["category"] == "no_failure":
        assert (report.status, report.causes) == ("passed", [])
        return
    assert report.status == "failed"
    cause = report.causes[0]
    if label["id"] in UNNAMED:
        assert cause.category == "unknown"
        return
    assert cause.category in {label["category"], *label.get("also", [])}
    assert cause.line in {label["root_cause_line"], *label["acceptable_lines"]}
    if label["failing_tests"]:
        assert set(report.failing_tests) == set(label["failing_tests"])
