"""Logs of programs that failed on a real card: each is diagnosed as it is."""

import json
from pathlib import Path

import pytest

from matrix.triage.diagnosis import diagnose

DATA = Path(__file__).parents[2] / "data/triage/gpu"
LABELS = [json.loads(line) for line in (DATA / "labels.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["id"])
def test_a_real_log_gets_its_category_and_a_line_of_the_cause(label):
    report = diagnose(str(DATA / "logs" / f"{label['id']}.log.gz"), exit_code=label["exit_code"])
    if label["category"] == "no_failure":
        assert (report.status, report.causes) == ("passed", [])
        return
    assert report.status == "failed"
    assert report.causes[0].category == label["category"]
    assert report.causes[0].line in label["acceptable_lines"]
