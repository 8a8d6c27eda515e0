from matrix.report.view import MAX_EXCERPT, excerpt, headline, view, why


def write_log(folder, name, text):
    path = folder / "logs" / name / "1.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"logs/{name}/1.log"


def test_a_cascade_is_one_failure_with_all_that_it_blocked(runs, tmp_path):
    seen = view(runs.cascade(), tmp_path)
    assert [f.job.name for f in seen.failures] == ["qwen-sft", "qwen3vl-fsdp", "flaky"]
    assert [j.name for j in seen.failures[0].blocked] == ["qwen-lora", "qwen-eval"]
    assert seen.failures[0].rerun == "matrix rerun 20261201-093011-7f3a qwen-sft"


def test_the_headline_counts_every_job_once(runs):
    assert (
        headline(runs.cascade())
        == "failed: 2 failed, 2 blocked, 1 passed, 1 skipped, 1 allowed to fail of 7 jobs in 3m09s"
    )


def test_a_job_blocked_by_one_that_is_not_in_the_run_stands_for_itself(runs, tmp_path):
    run = runs.run_of(runs.job("lora", "blocked", ran=False, blocked_by=["sft"]))
    (failure,) = view(run, tmp_path).failures
    assert (failure.job.name, failure.blocked) == ("lora", ())
    assert why(failure.job) == "blocked by sft"


def test_jobs_blocked_in_a_circle_are_all_shown(runs, tmp_path):
    run = runs.run_of(
        runs.job("a", "blocked", ran=False, blocked_by=["b"]), runs.job("b", "blocked", ran=False, blocked_by=["a"])
    )
    assert {f.job.name for f in view(run, tmp_path).failures} == {"a", "b"}


def test_the_excerpt_holds_the_evidence_and_its_neighbours(tmp_path):
    log = write_log(tmp_path, "j", "".join(f"line {n}\n" for n in range(1, 100)))
    rows = list(excerpt(tmp_path, log, 50, 52))
    assert [r.number for r in rows] == list(range(47, 55))
    assert [r.number for r in rows if r.hit] == [50]
    assert rows[3].text == "line 50"


def test_the_runners_time_before_each_line_is_left_out(tmp_path):
    log = write_log(tmp_path, "j", "2026-12-01T03:57:57.616806Z   boom\n2026-12-01 03:57:57,616 its own\n")
    assert [r.text for r in excerpt(tmp_path, log, 1)] == ["  boom", "2026-12-01 03:57:57,616 its own"]


def test_excerpts_are_bounded_in_lines_and_width(tmp_path):
    log = write_log(tmp_path, "j", ("x" * 1_000_000 + "\n") * 100)
    rows = list(excerpt(tmp_path, log, 1, 100))
    assert len(rows) == 17
    assert all(len(r.text) == 2000 for r in rows)
    assert rows[-1].number == 17


def test_a_log_outside_the_run_folder_is_never_shown(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link.log").symlink_to(secret)
    for log in ("../secret", str(secret), "link.log", "missing.log"):
        assert list(excerpt(folder, log, 1)) == []


def test_a_cause_in_a_log_of_one_rank_points_into_the_folder_of_logs(runs, tmp_path):
    (tmp_path / "logs" / "j" / "1.log").mkdir(parents=True)
    (tmp_path / "logs" / "j" / "1.log" / "workerlog.1").write_text("boom\n")
    run = runs.run_of(runs.job("j", "failed", runs.cause("unknown", "boom", 1, file="workerlog.1")))
    (evidence,) = view(run, tmp_path).failures[0].evidence
    assert evidence.where == "logs/j/1.log/workerlog.1:1"
    assert [r.text for r in evidence.excerpt] == ["boom"]


def test_what_the_runner_says_below_the_evidence_is_shown_whole_and_what_the_job_says_is_not(tmp_path):
    stamp = "2026-12-01T07:04:22.565284Z "
    said = [f"{stamp}[matrix] reached its limit", *(f"{stamp}[matrix] frame {n}" for n in range(9)), *("job",) * 9]
    (tmp_path / "1.log").write_text("\n".join([f"{stamp}step", *said]))
    shown = [line.text for line in excerpt(tmp_path, "1.log", 2)]
    assert shown == ["step", "[matrix] reached its limit", *(f"[matrix] frame {n}" for n in range(9))]
    (tmp_path / "1.log").write_text("\n".join(f"{stamp}[matrix] frame {n}" for n in range(99)))
    assert len(list(excerpt(tmp_path, "1.log", 1))) == MAX_EXCERPT + 1
