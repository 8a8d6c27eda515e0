"""The original report, told right: real programs fail, and record, log and comment say what a reader needs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.once import made_once

EXAMPLE = Path(__file__).parents[2] / "examples/model_pr"


def play(root):
    """Run the example's matrix in a repository of its own."""
    shutil.copytree(EXAMPLE, root / "model_pr", ignore=shutil.ignore_patterns("output", ".matrix"))
    git = ["git", "-C", root / "model_pr", "-c", "user.name=t", "-c", "user.email=t@t"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "change"]):
        subprocess.run([*git, *args], check=True)
    env = {
        **os.environ,
        "MATRIX_LEASE_DIR": str(root / "leases"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "matrix", "run", root / "model_pr/matrix.yaml"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    root = made_once(tmp_path_factory, "original-report", play)  # its launches have fixed ports: never two at a time
    (folder,) = (root / "model_pr/.matrix/runs").iterdir()
    return folder


@pytest.fixture(scope="module")
def jobs(run):
    return {job["name"]: job for job in json.loads((run / "run.json").read_text())["jobs"]}


def category(job):
    return job["attempts"][-1]["causes"][0]["category"]


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("unit", "failed", "numba_lowering_error"),
        ("qwen-single-pt", "failed", "pipeline_partition"),
        ("prefetch", "timeout", "job_timeout"),
        ("qwen-sft", "failed", "handoff_missing"),
        ("qwen3vl-sft-fsdp", "failed", "rank_abort_teardown"),
    ],
)
def test_each_failure_has_its_category_and_one_cause(jobs, name, status, expected):
    assert jobs[name]["status"] == status
    assert category(jobs[name]) == expected
    assert len(jobs[name]["attempts"][-1]["causes"]) == 1


@pytest.mark.parametrize("name", ["changed-files", "glm45-single-pt", "tokenizer-mirror", "qwen-pt"])
def test_what_is_green_is_green_and_has_no_cause(jobs, name):
    assert jobs[name]["status"] == "passed"
    assert not jobs[name]["attempts"][-1]["causes"]


def test_lora_is_blocked_by_sft_and_not_a_failure_of_its_own(jobs):
    assert (jobs["qwen-lora"]["status"], jobs["qwen-lora"]["blocked_by"]) == ("blocked", ["qwen-sft"])
    assert jobs["qwen-lora"]["verdict"]["value"] == "follows"


def test_the_abort_says_that_training_finished_and_the_checkpoint_was_saved(jobs):
    facts = {fact["key"]: fact["value"] for fact in jobs["qwen3vl-sft-fsdp"]["facts"]}
    assert facts["training_finished"] is True
    assert facts["checkpoint_saved"] == "output/qwen3vl-fsdp"


def test_the_hang_has_a_python_stack_of_each_process_in_its_log(run, jobs):
    log = (run / jobs["prefetch"]["attempts"][-1]["log"]).read_text()
    assert log.count("Python stacks of process") == 2
    assert "consume (prefetch.py" in log
    assert "producer (prefetch.py" in log


def test_the_numba_failure_names_its_test(jobs):
    assert jobs["unit"]["failing_tests"] == ["tests/test_modeling.py::GlmMoeDsaModelTest::test_GlmMoeDsa_lm_head_model"]


@pytest.mark.parametrize("language", ["en", "zh", "both"])
def test_the_comment_has_one_row_for_the_chain(run, tmp_path, language):
    out = tmp_path / "comment.md"
    command = [
        sys.executable,
        "-c",
        "from bot.cli import main; main()",
        "comment",
        run,
        "--dry-run",
        "--lang",
        language,
        "-o",
        out,
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    text = out.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| <b>")]
    tables = 2 if language == "both" else 1
    assert sum("qwen-sft" in row.split("</b>")[0] for row in rows) == tables
    assert not any("qwen-lora" in row.split("</b>")[0] for row in rows), "blocked, so under its root"
    assert len(rows) == 5 * tables
    assert text.startswith("<!-- matrix-report:v1 -->")
