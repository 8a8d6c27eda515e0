"""What failed first, from whole logs."""

from pathlib import Path

from matrix.triage import diagnose


def report(tmp_path: Path, text: str, **options):
    path = tmp_path / "job.log"
    path.write_text(text)
    return diagnose(path, **options)


TRACEBACK = """\
loading
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import deep_gemm_ext
ModuleNotFoundError: No module named 'deep_gemm_ext'
"""


def test_uncaught_exception_at_the_end_of_a_failed_job_is_its_cause(tmp_path):
    found = report(tmp_path, TRACEBACK, exit_code=1)
    assert found.status == "failed"
    assert [(c.line, c.category) for c in found.causes] == [(5, "module_not_found")]
    assert found.lines == 5


def test_a_job_that_exited_with_0_has_no_cause_whatever_it_printed(tmp_path):
    found = report(tmp_path, TRACEBACK, exit_code=0)
    assert (found.status, found.causes) == ("passed", [])


def test_an_empty_log_is_unknown(tmp_path):
    found = report(tmp_path, "")
    assert (found.status, found.causes, found.lines) == ("unknown", [], 0)


def test_a_failed_job_without_any_evidence_names_its_last_line_as_unknown(tmp_path):
    found = report(tmp_path, "a\nb\n", exit_code=3)
    assert [(c.line, c.category) for c in found.causes] == [(2, "unknown")]
