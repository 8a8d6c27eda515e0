"""What failed first, from whole logs."""

import gzip

import pytest
import zstandard

from matrix.errors import UsageError
from matrix.triage import diagnose

TRACEBACK = """\
loading
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import deep_gemm_ext
ModuleNotFoundError: No module named 'deep_gemm_ext'
"""


def github(*steps: tuple[str, str, int]) -> str:
    """A GitHub Actions log: steps of name, output and exit code."""
    lines = ["Current runner version: '2.330.0'"]
    for name, output, code in steps:
        lines += [f"##[group]Run {name}", f"\x1b[36;1m{name}\x1b[0m", "##[endgroup]", *output.splitlines()]
        if code:
            lines.append(f"##[error]Process completed with exit code {code}.")
    lines += ["Post job cleanup.", "Cleaning up orphan processes"]
    return "".join(f"2026-12-01T01:02:03.{n:06d}0Z {line}\n" for n, line in enumerate(lines))


def first(found) -> tuple[str, str]:
    return found.causes[0].category, found.causes[0].text


def test_uncaught_exception_at_the_end_of_a_failed_job_is_its_cause(report):
    found = report(TRACEBACK, exit_code=1)
    assert found.status == "failed"
    assert [(c.line, c.category) for c in found.causes] == [(5, "module_not_found")]
    assert found.lines == 5


def test_a_job_that_exited_with_0_has_no_cause_whatever_it_printed(report):
    found = report(TRACEBACK, exit_code=0)
    assert (found.status, found.causes) == ("passed", [])


def test_an_empty_log_is_unknown(report):
    found = report("")
    assert (found.status, found.causes, found.lines) == ("unknown", [], 0)


def test_a_failed_job_without_any_evidence_names_its_last_line_as_unknown(report):
    found = report("a\nb\n", exit_code=3)
    assert [(c.line, c.category) for c in found.causes] == [(2, "unknown")]


BUILD = """\
#14 [ 9/12] RUN make -j8
#14 228.1 g++ -shared a.o b.o -o libkernels.so
#14 230.9 /usr/bin/ld: final link failed: No space left on device
#14 230.9 make: *** [Makefile:41: libkernels.so] Error 1
#14 ERROR: process "/bin/sh -c make -j8" did not complete successfully: exit code: 2
"""


def test_a_build_in_layers_failed_where_it_did_not_complete_successfully(report):
    found = report(BUILD)
    assert (found.status, found.causes[0].category, found.causes[0].line) == ("failed", "disk_full", 3)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("make: *** [Makefile:12: tables] Error 42", "failed"),
        ("make: *** No rule to make target 'x'.  Stop.", "failed"),
        ("ninja: build stopped: subcommand failed.", "failed"),
        ("make: *** [Makefile:12: tables] Error 42\nbuilt without tables: done", "unknown"),
        ("make: [Makefile:12: tables] Error 1 (ignored)", "unknown"),
    ],
)
def test_a_log_failed_if_its_last_word_is_that_of_a_build_that_stopped(report, end, status):
    assert report(f"python gen.py\nreading tables\n{end}\n").status == status


def test_advice_below_a_message_is_not_taken_for_the_message(report):
    found = report("dsv4: the ports are taken\n  name others with --port\n", exit_code=2)
    assert [(c.line, c.category) for c in found.causes] == [(1, "unknown")]


def test_the_first_step_to_fail_is_the_cause_and_what_tidies_up_follows(report):
    found = report(
        github(
            ("make", "ok", 0),
            ("python train.py", TRACEBACK, 1),
            ("cp out/*.json .", "cp: cannot stat 'out/*.json': No such file or directory", 1),
        )
    )
    assert first(found) == ("module_not_found", "ModuleNotFoundError: No module named 'deep_gemm_ext'")
    assert len(found.causes) == 1
    assert [c.text for c in found.causes[0].consequences if c.text.startswith("cp:")]


def test_a_failure_in_a_step_that_passed_is_no_cause(report):
    found = report(github(("python probe.py || true", TRACEBACK, 0)))
    assert (found.status, found.causes) == ("passed", [])


def test_the_text_of_a_step_s_script_is_no_evidence(report):
    found = report(github(("echo 'CUDA out of memory' >&2; exit 1", "", 1)))
    assert found.causes[0].category == "unknown"


def test_a_runner_s_log_that_stops_before_the_end_cannot_be_told(report):
    whole = github(("python train.py", "step 1\nstep 2\n" + TRACEBACK, 1))
    cut = whole[: whole.index("Traceback")]
    found = report(cut)
    assert (found.status, found.causes) == ("unknown", [])


def test_a_caught_exception_is_passed_over_for_the_fatal_one(report):
    steps = "".join(f"step {i}: loss {1 / (i + 1):.4f}\n" for i in range(20))
    caught = '2026-12-01 01:02:03,456 ERROR cache: miss, will retry\nTraceback (most recent call last):\n  File "c.py", line 1, in get\nConnectionResetError: peer\n'
    found = report(
        steps
        + caught
        + steps
        + "Traceback (most recent call last):\n  File \"t.py\", line 9, in <module>\nKeyError: 'rope_theta'\n",
        exit_code=1,
    )
    assert found.causes[0].text == "KeyError: 'rope_theta'"


def test_the_innermost_exception_of_a_chain_wins_over_its_wrappers(report):
    found = report(
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in load\nFileNotFoundError: [Errno 2] No such file or directory: 'ckpt/model.safetensors'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in main\nRuntimeError: cannot start\n',
        exit_code=1,
    )
    assert (found.causes[0].line, found.causes[0].category) == (3, "checkpoint_missing_file")


def test_the_rank_that_raised_is_the_cause_and_ranks_that_lost_it_follow(report):
    lost = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:1"
    found = report(
        "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/w/train.py", line 7, in hook\n[rank0]:   File "/v/site-packages/torch/distributed/x.py", line 3, in all_reduce\n'
        f"[rank0]: {lost}\n[rank1]: IndexError: list index out of range\n",
        exit_code=1,
    )
    cause = found.causes[0]
    assert (cause.category, cause.rank, cause.line, cause.text) == (
        "worker_exception",
        1,
        6,
        "IndexError: list index out of range",
    )


def test_lines_count_newlines_only(report):
    text = b"10%\r20%\r30%\n\x1b[31mred\x1b[0m\x85\x0b\x0c still the same line\n" + TRACEBACK.encode()
    found = report(text, exit_code=1)
    assert (found.causes[0].line, found.lines) == (7, 7)


def test_logs_may_be_gzip_or_zstandard(tmp_path):
    for name, packed in (
        ("a.log.gz", gzip.compress(TRACEBACK.encode())),
        ("a.log.zst", zstandard.compress(TRACEBACK.encode())),
    ):
        (tmp_path / name).write_bytes(packed)
        found = diagnose(tmp_path / name, exit_code=1)
        assert (found.lines, found.causes[0].line) == (5, 5)


def test_a_damaged_archive_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(TRACEBACK.encode() * 2000)[:-40])
    assert diagnose(tmp_path / "a.log.gz", exit_code=1).lines > 0


def test_a_log_that_is_not_there_is_a_user_s_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        diagnose(tmp_path / "none.log")


def test_the_same_failure_has_the_same_signature_in_another_run(report):
    one = report(TRACEBACK.replace("deep_gemm_ext", "ext") + "", exit_code=1)
    two = report("2026-01-01T00:00:00.0000000Z x\n" * 50 + TRACEBACK.replace("deep_gemm_ext", "ext"), exit_code=1)
    assert one.causes[0].signature == two.causes[0].signature
    assert one.causes[0].line != two.causes[0].line
