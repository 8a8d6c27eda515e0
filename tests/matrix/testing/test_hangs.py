"""Tests that hang, and workers that die."""

HANGS = """\
import ctypes, time

def test_fine(): pass

def test_waits():
    time.sleep(60)

def test_holds_the_gil():
    mutex, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)

def test_after(): pass
"""


def test_a_test_that_can_be_interrupted_fails_alone_with_its_stacks(project):
    project.write("test_a.py", HANGS)
    assert project.pytest("--matrix-limit", "1", "-k", "not gil") == 1, project.out
    assert project.cases() == {"test_fine": "passed", "test_waits": "failure", "test_after": "passed"}
    assert "job_timeout: test_a.py::test_waits did not end within 1 s" in project.out
    assert "test_waits (" in project.out or "in test_waits" in project.out


def test_a_test_that_holds_the_gil_is_ended_from_outside_and_the_rest_runs(project):
    project.write("test_a.py", HANGS)
    assert project.pytest("--matrix-limit", "1", "-n", "2", "-k", "not waits") == 1, project.out
    assert project.cases()["test_after"] == "passed"
    assert "job_timeout: test_a.py::test_holds_the_gil did not end within 1 s" in project.out
    assert "test_holds_the_gil (" in project.out or "in test_holds_the_gil" in project.out


def test_without_workers_the_hang_is_told_before_pytest_is_killed(project):
    project.write("test_a.py", HANGS)
    assert project.pytest("--matrix-limit", "1", "-k", "gil") == -9
    assert "test_a.py::test_holds_the_gil: did not end within 1 s and could not be interrupted" in project.out


def test_a_worker_that_dies_of_a_signal_is_told_by_its_cause(project):
    project.write("test_a.py", "import ctypes\ndef test_a(): ctypes.string_at(0)\ndef test_b(): pass\n")
    assert project.pytest("--matrix-limit", "30", "-n", "2") == 1, project.out
    assert "Segmentation fault" in project.out
    assert "the worker died in test_a.py::test_a" in project.out
    assert "unknown: the worker died" not in project.out


def test_a_limit_that_is_none_is_refused(project):
    project.write("test_a.py", HANGS)
    project.write("pytest.ini", "[pytest]\nmatrix_limit = soon\n")
    assert project.pytest() == 4
    assert "write seconds" in project.out
