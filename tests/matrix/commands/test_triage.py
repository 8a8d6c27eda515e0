"""What `matrix triage` prints for people."""

from click.testing import CliRunner

from matrix.cli import cli


def triage(*paths):
    done = CliRunner().invoke(cli, ["triage", *map(str, paths)], catch_exceptions=False, standalone_mode=False)
    return done.output


def test_a_cause_names_its_place_its_tests_and_what_to_do(tmp_path):
    log = tmp_path / "a.log"
    names = [f"tests/test_a.py::test_{n}" for n in range(7)]
    log.write_text(
        "".join(f"FAILED {name} - AssertionError: assert 1 == 2\n" for name in names) + "=== 7 failed in 1.00s ===\n"
    )
    said = triage(log)
    assert f"{log}: failed\n" in said
    assert f"  {log}:1: test_assertion: " in said
    assert "tests/test_a.py::test_0" in said
    assert "    fix: " in said


def test_a_log_that_says_nothing_is_unknown_in_words(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("step: 1 loss: 2.0\n")
    assert triage(log) == f"{log}: unknown (cannot tell: no line says that it failed, or that it ended well)\n"
