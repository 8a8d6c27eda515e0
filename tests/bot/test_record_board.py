from pathlib import Path

from bot.record_board import board_of_record, lines_of_folder
from matrix.records import Status, load

REPORT = Path(__file__).parents[1] / "data" / "github" / "original_report" / "run.json"


def test_the_original_report_is_four_rows_and_the_chain_is_one_of_them():
    board = board_of_record(load(REPORT))
    assert {r.job: r.category for r in board.rows} == {
        "qwen3-single-pt": "pipeline_partition",
        "qwen-sft": "handoff_missing",
        "qwen3vl-sft-fsdp": "rank_abort_teardown",
        "unittest-gpu": "numba_lowering_error",
    }
    assert [(r.job, [b.job for b in r.folded]) for r in board.rows if r.folded] == [("qwen-sft", ["qwen-lora"])]
    assert board.counts[Status.BLOCKED] == 1
    assert board.colour == "red"


def test_earlier_attempts_become_history():
    run = load(REPORT)
    job = run.job("unittest-gpu")
    job.attempts.append(job.attempts[0].model_copy(update={"n": 2}))
    (past,) = board_of_record(run).history
    assert (past.attempt, past.failed, past.passed) == (1, ("unittest-gpu",), 0)


def test_links_name_the_line_of_the_log():
    board = board_of_record(load(REPORT), base_url="https://ci.example/r/")
    row = next(r for r in board.rows if r.job == "unittest-gpu")
    assert row.findings[0].evidence.url == "https://ci.example/r/logs/unittest-gpu/1.log#L1811"


def test_excerpts_come_from_the_run_folder_and_from_nowhere_else(tmp_path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("no\n")
    (tmp_path / "run" / "logs" / "a.log").write_bytes(b"one\ntwo\xff\nthree\n" + b"x" * 10_000)
    (tmp_path / "run" / "logs" / "link.log").symlink_to(tmp_path / "secret.txt")
    read = lines_of_folder(tmp_path / "run")
    assert read("logs/a.log", -3, 2) == "one\ntwo\ufffd\n"
    assert len(read("logs/a.log", 1, 9)) < 3000
    for outside in ("../secret.txt", str(tmp_path / "secret.txt"), "logs/link.log", "logs", "nope"):
        assert read(outside, 1, 9) == ""
