"""The injected sitecustomize: it must not be noticed but by the signal that it answers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from matrix.engine import local
from matrix.host import stacks

INJECT = Path(local.__file__).parents[1] / "host" / "inject"


def python(code, tmp_path, *path, **env):
    names = [str(INJECT), *(str(p) for p in path)]
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(names), "MATRIX_STACKS": str(tmp_path / "stacks")}
    full |= {"MATRIX_STACKS_SIGNAL": str(int(stacks.SIGNAL)), **env}
    return subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True)


def test_the_sitecustomize_that_was_there_still_runs(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("value = 7\nimport sys\nsys.seen = __file__")
    done = python(
        "import sys, sitecustomize; print(sitecustomize.value, sys.seen, sitecustomize.__file__)", tmp_path, own
    )
    where = str(own / "sitecustomize.py")
    assert done.stdout.split() == ["7", where, where]
    assert done.stderr == ""


def test_an_error_in_it_is_shown_as_without_us(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("1 / 0")
    done = python("print('goes on')", tmp_path, own)
    assert done.stdout == "goes on\n"
    assert "ZeroDivisionError" in done.stderr


def test_without_another_one_nothing_is_left_of_us_but_the_handler(tmp_path):
    code = "import faulthandler, sys; print([p for p in sys.path if 'inject' in p], faulthandler.is_enabled())"
    done = python(code, tmp_path, PYTHONFAULTHANDLER="")
    assert done.stdout == "[] False\n"
    assert done.stderr == ""


def test_a_file_that_cannot_be_written_is_no_error(tmp_path):
    done = python("print('runs')", tmp_path, MATRIX_STACKS="/no/such/folder/stacks")
    assert (done.stdout, done.stderr) == ("runs\n", "")


def test_python_is_told_from_others_and_handlers_from_none(tmp_path):
    code = "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: 0); print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE)
    other = subprocess.Popen(["sleep", "60"])
    try:
        child.stdout.readline()
        assert stacks.is_python(child.pid)
        assert stacks.catches(child.pid, signal.SIGUSR1)
        assert not stacks.catches(child.pid, stacks.SIGNAL)
        time.sleep(0.1)  # until it is `sleep` and no fork of this process
        assert not stacks.is_python(other.pid)
    finally:
        child.kill()
        other.kill()
        child.communicate()
        other.wait()
