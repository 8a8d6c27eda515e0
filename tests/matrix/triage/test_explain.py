"""What people read: the explanation and the page."""

from click.testing import CliRunner

from matrix.commands.triage import command
from matrix.triage import diagnose
from matrix.triage.explain import explain
from matrix.triage.page import page
from matrix.triage.ruleset import load_rules

LOG = "".join(f"step {i}\n" for i in range(300)) + (
    "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n    <script>alert(1)</script>\nModuleNotFoundError: No module named 'deep_gemm_ext'\n"
)


def written(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(LOG)
    return path


def test_explanation_shows_the_line_among_its_neighbours_and_what_to_do(tmp_path):
    text = explain(diagnose(written(tmp_path), exit_code=1), load_rules())
    assert ">     304 | ModuleNotFoundError: No module named 'deep_gemm_ext'" in text
    assert "301 | Traceback" in text
    assert "rule module-not-found fits that line" in text
    assert "do: " in text


def test_page_marks_the_cause_links_to_it_folds_the_rest_and_escapes_the_log(tmp_path):
    html = page(diagnose(written(tmp_path), exit_code=1), load_rules())
    assert '<a href="#L304">line 304</a>' in html
    assert '<div id="L304" class="cause"' in html
    assert "lines folded" in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_check_exits_1_for_a_failed_log_and_0_for_one_that_passed(tmp_path):
    path = str(written(tmp_path))
    assert CliRunner().invoke(command, [path, "--exit-code", "1", "--check"]).exit_code == 1
    assert CliRunner().invoke(command, [path, "--exit-code", "0", "--check"]).exit_code == 0


def test_json_is_the_only_thing_on_stdout(tmp_path):
    import json

    out = CliRunner().invoke(command, [str(written(tmp_path)), "--exit-code", "1", "--json"]).stdout
    document = json.loads(out)
    assert document["schema"] == "triage/1"
    assert document["logs"][0]["causes"][0]["line"] == 304
