"""Completion by the shell: bash itself is asked."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(shell):
    code = "from matrix.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "completion", shell], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{shell}_complete" in done.stdout


def test_verbs_are_completed(tmp_path):
    env = {**os.environ, "_MATRIX_COMPLETE": "bash_complete", "COMP_WORDS": "matrix do", "COMP_CWORD": "1"}
    done = subprocess.run(["matrix"], capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["plain,doctor"]
