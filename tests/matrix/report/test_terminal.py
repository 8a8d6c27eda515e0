import io
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from matrix.records import Status
from matrix.report import terminal

NOW = datetime(2026, 12, 1, 9, 32, 11, tzinfo=UTC)
anything = st.text(st.characters(exclude_categories=[]), max_size=80)


def console(*, tty: bool = False, width: int = 200, height: int = 40, encoding: str = "utf-8") -> Console:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", newline="\n")
    options = {"width": width, "height": height, "markup": False, "highlight": False, "emoji": False}
    return Console(file=stream, force_terminal=tty, _environ={}, **options)


def written(c: Console) -> str:
    c.file.flush()
    return c.file.buffer.getvalue().decode("utf-8", "replace")


def live(run, c, env=None, **options):
    return terminal.Live(run, console=c, env=env or {}, now=lambda: NOW, **options)


def test_without_a_terminal_each_change_of_state_is_one_line(runs):
    job = runs.job("sft", "pending", ran=False)
    run = runs.run_of(job, runs.job("lora", "pending", ran=False), status="running", ended=None)
    c = console()
    with live(run, c, expected={"sft": 300.0}) as shown:
        job.status, job.attempts = Status.RUNNING, runs.job("sft", "passed").attempts
        shown.update()
        shown.update()
        job.status = Status.PASSED
        shown.update()
        run.jobs[1].status, run.jobs[1].blocked_by = Status.BLOCKED, ["sft"]
    assert written(c).splitlines() == [
        "09:32:11Z sft running on H20 #2 expected 5m00s",
        "09:32:11Z sft passed after 1m35s",
        "09:32:11Z lora blocked by sft",
    ]


def test_of_a_job_in_a_queue_it_is_told_when_it_really_begins_and_where(runs):
    job = runs.job("sft", "running")
    place = job.attempts[-1].cards
    job.attempts[-1].cards, job.reason = [], "in the queue of slurm"
    c = console()
    with live(runs.run_of(job, status="running", ended=None), c) as shown:
        job.attempts[-1].cards, job.attempts[-1].hosts, job.reason = place, ["gpu1"], None
        shown.update()
    assert written(c).splitlines() == [
        "09:32:11Z sft running: in the queue of slurm",
        "09:32:11Z sft running on gpu1, H20 #2",
    ]


def test_a_second_attempt_is_a_change_too(runs):
    job = runs.job("sft", "failed")
    c = console()
    with live(runs.run_of(job), c) as shown:
        job.attempts.append(job.attempts[0].model_copy(update={"n": 2}))
        shown.update()
    assert written(c).splitlines()[-1] == "09:32:11Z sft failed (attempt 2) after 1m35s"


def test_on_a_terminal_a_table_is_drawn_and_taken_away(runs):
    run = runs.run_of(runs.job("sft", "running"), status="running", ended=None)
    c = console(tty=True)
    with live(run, c):
        pass
    text = written(c)
    assert "Expected" in text
    assert text.rstrip().endswith("\x1b[2K") or "\x1b[1A" in text


@pytest.mark.parametrize("env", [{"CI": "1"}, {"GITHUB_ACTIONS": "true"}])
def test_ci_gets_lines_even_with_a_terminal(runs, env):
    assert terminal.interactive(console(tty=True), {})
    assert not terminal.interactive(console(tty=True), env)
    assert not terminal.interactive(console(), {})


def test_the_table_shows_cards_time_and_what_is_expected_and_marks_the_late(runs):
    job = runs.job("sft", "running")
    job.attempts[0].ended = None
    c = console()
    c.print(live(runs.run_of(job, status="running", ended=None), c, expected={"sft": 60.0}).table())
    row = next(line for line in written(c).splitlines() if line.startswith("sft"))
    assert row.split() == ["sft", "running", "H20", "#2", "2m00s", "1m00s"]


def test_the_table_says_how_long_it_takes_at_least_by_the_longest_chain(runs):
    running = runs.job("pt", "running")
    running.attempts[0].ended = None
    jobs = [running, runs.job("sft", "pending", ran=False, needs=["pt"]), runs.job("unknown", "pending", ran=False)]
    run = runs.run_of(*jobs, status="running", ended=None)
    c = console()
    c.print(live(run, c, expected={"pt": 180.0, "sft": 300.0}).table())
    assert "at least 6m00s more" in written(c).splitlines()[0], "one minute of pt is left, and all of sft"
    c = console()
    c.print(live(run, c).table())
    assert "more" not in written(c).splitlines()[0]


def test_a_table_of_many_jobs_fits_the_terminal_and_counts_the_rest(runs):
    jobs = [runs.job(f"j{n}", "passed") for n in range(500)] + [runs.job("bad", "failed")]
    c = console(height=20, width=80)
    c.print(live(runs.run_of(*jobs), c).table())
    lines = written(c).splitlines()
    assert len(lines) <= 20
    assert all(len(line) <= 80 for line in lines)
    assert "bad" in lines[2]
    assert lines[-1].startswith("and ")
    assert "passed" in lines[-1]


def test_the_summary_tells_causes_facts_blocked_jobs_and_the_command(runs, tmp_path):
    log = tmp_path / "logs" / "qwen3vl-fsdp" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text("training\nsaved\nterminate called without an active exception\n")
    c = console()
    terminal.summary(runs.cascade(), tmp_path, c)
    text = written(c)
    for part in (
        "failed qwen-sft  Integration test (H20, multi-card) · exit 1 · H20 #2",
        "blocked by this: qwen-lora, qwen-eval",
        "run it again: matrix rerun 20261201-093011-7f3a qwen-sft",
        "rank_abort_teardown rank 0  logs/qwen3vl-fsdp/1.log:3",
        ">     3 │ terminate called without an active exception",
        "training_finished: True  logs/qwen3vl-fsdp/1.log:2",
        "fix: Destroy the process group before the exit.",
        "failed: 2 failed, 2 blocked",
        "matrix rerun 20261201-093011-7f3a --failed",
        "report.html",
    ):
        assert part in text, part
    assert text.count("terminate called") == 1


def test_the_summary_names_the_tests_that_failed_and_counts_the_rest(runs, tmp_path):
    job = runs.job("unit", "failed", failing_tests=[f"tests/test_a.py::test_{n}" for n in range(30)])
    job.facts.append(runs.Fact(key="seen_before", value="1 time since 2026-11-01, on no pull request"))
    c = console()
    terminal.summary(runs.run_of(job), tmp_path, c)
    assert "failing test: tests/test_a.py::test_0\n" in written(c)
    assert "and 22 more failing tests, see the report" in written(c)
    assert "seen before: 1 time since 2026-11-01" in written(c)


def test_an_evidence_text_that_is_not_the_line_is_shown_beside_it(runs, tmp_path):
    log = tmp_path / "logs" / "sft" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text("global_step: 1, loss: 1.5\n")
    c = console()
    cause = runs.cause("loss_mismatch", "first diverging loss: step 1 is 1.5 where base.txt:1 has 1.25", 1)
    terminal.summary(runs.run_of(runs.job("sft", "failed", cause)), tmp_path, c)
    assert "first diverging loss" in written(c)
    assert "global_step: 1" in written(c)


def test_a_note_of_a_green_job_is_told(runs, tmp_path):
    job = runs.job("sft", "passed", facts=[runs.Fact(key="loss_baseline", value="no baseline for H20 yet")])
    c = console()
    terminal.summary(runs.run_of(job, status="passed"), tmp_path, c)
    assert "note sft: no baseline for H20 yet" in written(c)


def test_a_green_run_is_summed_up_in_a_line(runs, tmp_path):
    c = console()
    terminal.summary(runs.run_of(runs.job("a", "passed"), status="passed"), tmp_path, c)
    assert written(c).strip().splitlines()[0] == "passed: 1 passed of 1 job in 3m09s"
    assert "again" not in written(c)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anything, st.sampled_from(["utf-8", "ascii", "gbk"]))
def test_hostile_text_reaches_no_terminal_and_no_workflow_runner(runs, tmp_path, text, encoding):
    log = tmp_path / "logs" / "x" / "1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"\x1b[2J\n::error::x\n##[error]x\n" + text.encode("utf-8", "replace"))
    job = runs.job("x", "failed", runs.cause("unknown", "::add-mask::" + text, 3), suite="\x1b]0;" + text, reason=text)
    run = runs.run_of(job)
    c = console(encoding=encoding)
    with live(run, c):
        terminal.summary(run, tmp_path, c)
    c.file.flush()
    shown = c.file.buffer.getvalue().decode(encoding, "replace")
    assert "\x1b" not in shown
    assert "##[" not in shown
    assert not any(line.strip().startswith("::") for line in shown.split("\n"))
