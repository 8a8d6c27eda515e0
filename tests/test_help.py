"""How the three commands say what they do and what is wrong with a command line."""

import os
import re
import subprocess
import sys

import pytest

GROUPS = [["matrix"], ["matrix", "rules"], ["matrix", "history"], ["matrix", "flaky"], ["bot"], ["dsv4"]]


def run(*words):
    code = f"import sys; from {words[0]}.cli import main; sys.argv[0] = {words[0]!r}; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words[1:]], capture_output=True, text=True, env={"COLUMNS": "80", "PATH": "/bin"}
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_shows_each_verb_with_an_example_that_no_line_end_breaks(group):
    code, out, _ = run(*group, "--help")
    assert code == 0
    table = out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    verbs = [line.split()[0] for line in table if re.match(r"  \S", line)]
    examples = [line.strip() for line in table if line.strip().startswith("$ ")]
    assert len(verbs) >= 2
    assert len(examples) == len(verbs)
    for example in examples:
        assert example.split()[1 : 1 + len(group)] == group
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "..." not in "".join(table)


@pytest.mark.parametrize("command", ["matrix", "bot", "dsv4"])
def test_help_says_the_exit_codes(command):
    assert "Exit codes: 0 all well; 1 " in run(command, "--help")[1]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["matrix", "trage"], "matrix: No such command 'trage'. Did you mean `matrix triage`?"),
        (["matrix", "run", "--foo"], "matrix run: No such option '--foo'."),
        (["bot", "comment"], "bot comment: Missing argument 'RUN'."),
        (["dsv4", "train", "--foo"], "dsv4 train: No such option '--foo'."),
    ],
)
def test_wrong_use_is_one_line_and_one_line_of_advice(words, first):
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    said, advice = err.splitlines()
    assert said == first
    assert advice.startswith("  ")
    assert "--help" in advice


@pytest.mark.parametrize("line", ["matrix rules list", "matrix schema", "dsv4 train --keys"])
def test_a_reader_that_goes_away_is_neither_success_nor_a_failure_of_the_work(line):
    program, *words = line.split()
    code = f"import sys; from {program}.cli import main; sys.argv = [{program!r}, *{words!r}]; main()"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""
