"""What befalls a run from outside: a full disk, a folder that may not be written, jobs that misbehave."""

import errno
import os

import pytest

from matrix.engine.outcome import outcome
from matrix.host import process
from matrix.run import state
from matrix.run.judge import judge
from matrix.run.prepare import Place
from matrix.spec.job import Job

from .test_run import repo  # noqa: F401 -- a fixture


def test_a_disk_that_fills_up_ends_the_run_with_a_line_and_resume_finishes_it(repo, monkeypatch):  # noqa: F811
    repo.write({"a": {"command": "echo once >> a"}, "b": {"command": "echo b"}})
    save = state.save

    def full(record, path):
        if record.job("a").status == "passed":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(record, path)

    with monkeypatch.context() as patch:
        patch.setattr(state, "save", full)
        done = repo.matrix("run", code=3)
    name = repo.last().name
    assert done.stderr.splitlines()[-2:] == [
        "matrix: no space left on device",
        f"  free some space (matrix prune removes old runs), then: matrix run --resume {name}",
    ]
    assert "Traceback" not in done.stderr
    repo.matrix("run", "--resume", name, code=0)
    assert repo.record().status == "passed"


@pytest.mark.parametrize("what", [".matrix/runs", ".matrix"])
def test_a_run_folder_that_cannot_be_made_is_said_in_a_line(repo, what):  # noqa: F811
    repo.write({"a": {"command": "true"}})
    path = repo.root / what
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file")
    done = repo.matrix("run")
    assert done.code in (2, 3)
    assert done.stderr.startswith("matrix: ")
    assert str(path) in done.stderr


def test_a_job_whose_last_words_found_no_place_on_the_disk_failed_of_that(tmp_path):
    log = tmp_path / "logs" / "j" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-12-01T09:30:11.123456Z step 1\n2026-12-01T09:30:12.123456Z st")
    event = {"why": "exit", "exit_code": 1, "started": 1.0, "ended": 2.0, "log_problem": os.strerror(errno.ENOSPC)}
    place = Place(tmp_path, tmp_path)
    judged = judge(Job("j", "s", ("x",)), 1, outcome(event, 0.0), place, None)
    assert [c.category for c in judged.causes] == ["disk_full"]
    log.write_text("2026-12-01T09:30:11.123456Z RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    judged = judge(Job("j", "s", ("x",)), 1, outcome(event, 0.0), place, None)
    assert judged.causes[0].category != "disk_full", "what the log does say counts first"


HOSTILE = {
    "binary": "head -c 3000000 /dev/urandom; printf '\\0\\0\\033[2J\\r\\rtail'",
    "closes": "exec >&- 2>&-; sleep 0.3",
    "moves": "exec python -c 'import os; os.fork() and os._exit(0); os.setsid(); print(1)'",
    "longline": "head -c 50000000 /dev/zero | tr '\\0' x",
    "children": "for i in $(seq 200); do sleep 600 & done",
    "daemon": 'python -c "import os, time; os.fork() and os._exit(0); os.setsid(); os.closerange(0, 99); time.sleep(600)"',
}


def test_jobs_that_misbehave_pass_and_leave_nothing(repo):  # noqa: F811
    repo.write({name: {"command": command, "timeout": "60s"} for name, command in HOSTILE.items()})
    record = repo.run("--cpu-jobs", "3", code=0)
    assert {job["name"] for job in record["jobs"]} == set(HOSTILE)
    assert [p for name in HOSTILE for p in process.of_job(f"{record['id']}/{name}/1")] == []
