import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.errors import ToolError
from matrix.records import (
    BAD,
    FINAL,
    Attempt,
    Fact,
    JobRecord,
    RunRecord,
    SpecRef,
    Status,
    dump,
    load,
    move,
    outcome,
    save,
)

WRITER = """
import sys
from pathlib import Path
from matrix.records import JobRecord, RunRecord, SpecRef, save
path = Path(sys.argv[1])
run = RunRecord(id="r", spec=SpecRef(path="m", sha256="0"), engine="local", host="h", started="t")
n = 0
while True:
    n += 1
    run.host = str(n)
    run.jobs = [JobRecord(name=f"job-{i}", suite="s" * 200) for i in range(n % 300)]
    save(run, path)
    print(n, flush=True)
"""
anything = st.text(st.characters(exclude_categories=[]), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)


def run_of(*statuses: Status, **more) -> RunRecord:
    jobs = [JobRecord(name=f"j{n}", suite="s", status=s) for n, s in enumerate(statuses)]
    values = {"id": "r", "spec": SpecRef(path="m", sha256="0"), "engine": "local", "host": "h", "started": "t"}
    return RunRecord(**(values | {"jobs": jobs} | more))


def killed_while_saving(path, rounds: int) -> None:
    """Kill a process that saves without end, `rounds` times; each time the record must be whole and not go back."""
    for _ in range(rounds):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(random.uniform(0, 0.05))
            writer.send_signal(signal.SIGKILL)
            told = writer.stdout.read().split()
        found = load(path)
        assert len(found.jobs) == int(found.host) % 300
        if told:
            assert int(found.host) >= int(told[-1])
        assert len(list(path.parent.glob(".run.json.*.tmp"))) <= rounds


def test_kill_at_any_moment_leaves_a_whole_record(tmp_path):
    killed_while_saving(tmp_path / "run.json", 4)


@pytest.mark.soak
def test_kill_at_any_moment_leaves_a_whole_record_a_hundred_times(tmp_path):
    killed_while_saving(tmp_path / "run.json", 100)


def test_a_record_is_read_back_as_it_was_saved(tmp_path):
    run = run_of(Status.PASSED, Status.BLOCKED, commit="abc", companions={"a/b": "c"})
    run.jobs[0].attempts.append(Attempt(n=1, started="t", log="logs/j0/1.log", peak_memory=5))
    save(run, tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run
    assert json.loads((tmp_path / "run.json").read_text())["schema"] == "run/1"
    assert os.listdir(tmp_path) == ["run.json"]  # noqa: PTH208


@given(anything, json_values)
def test_any_text_and_any_fact_give_a_document_that_is_read_back(tmp_path_factory, text, value):
    run = run_of(Status.FAILED, host=text)
    run.jobs[0].reason = text
    run.jobs[0].facts.append(Fact(key=text, value=value, source=text))
    document = dump(run)
    document.encode()
    again = RunRecord.model_validate_json(document)
    assert dump(again) == document
    assert again.host == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "run/2"}', "\x00"])
def test_a_file_that_is_no_record_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ToolError, match=r"not a run/1 record"):
        load(tmp_path / "run.json")


def test_a_run_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ToolError, match="no such run"):
        load(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Status.PASSED, Status.FAILED),
        (Status.PENDING, Status.PASSED),
        (Status.RUNNING, Status.BLOCKED),
        (Status.BLOCKED, Status.RUNNING),
    ],
)
def test_illegal_moves_are_refused_and_change_nothing(start, end):
    job = JobRecord(name="j", suite="s", status=start)
    with pytest.raises(ToolError, match="cannot go from"):
        move(job, end)
    assert job.status is start


@given(st.lists(st.sampled_from(sorted(FINAL)), max_size=6), st.data())
def test_a_run_is_green_only_if_something_passed_and_nothing_that_counts_failed(statuses, data):
    run = run_of(*statuses)
    for job in run.jobs:
        job.allowed = data.draw(st.booleans())
    result = outcome(run)
    counted = [j.status for j in run.jobs if not j.allowed]
    if result is Status.PASSED:
        assert not set(counted) & BAD
    if set(counted) & BAD or not any(s is not Status.SKIPPED for s in statuses):
        assert result is not Status.PASSED


def test_a_run_with_an_open_job_is_running():
    assert outcome(run_of(Status.PASSED, Status.PENDING)) is Status.RUNNING
