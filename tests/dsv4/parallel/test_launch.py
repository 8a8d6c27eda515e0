"""What is refused, found or told before and after the ranks: without training."""

import io
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsv4.commands.launch import _new_folder
from dsv4.errors import UsageError
from dsv4.parallel import launch as launching
from dsv4.parallel.groups import Launched, Rendezvous
from dsv4.parallel.launch import free_endpoints, launch
from dsv4.parallel.plan import plan_job

PLAN_WITHOUT_PADDLE = """
import json, sys
from dsv4.parallel.plan import describe_job, plan_job
from dsv4.parallel import launch
plan = plan_job(sys.argv[1:], None)
print(json.dumps([plan.layout.world, len(describe_job(plan)), sorted({"paddle", "torch"} & sys.modules.keys())]))
"""


def test_reading_a_configuration_and_planning_a_job_load_no_framework(small):
    """The launcher starts in a moment; only the ranks load Paddle."""
    argv = [sys.executable, "-c", PLAN_WITHOUT_PADDLE, str(small[0]), "--set", "expert_parallel=2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [2, 4, []]


@pytest.mark.parametrize(
    ("settings", "ranks", "words"),
    [
        (["expert_parallel=2"], 3, "= 2 ranks, but 3 were started"),
        (["expert_parallel=3"], None, "3 does not divide the 4 experts"),
        (["pipeline_parallel=3"], None, "only 2 decoder layers"),
        (["pipeline_parallel=2", "seg_method=layer:TransformerLayer"], None, "matches no layer"),
        (["data_split=rows"], 3, "2 rows of a micro-batch do not divide among 3 ranks"),
        (["data_split=micros"], 4, "2 micro-batches of a step do not divide among 4 ranks"),
        (["expert_parallel=2", "compute_path=plain"], None, "plain shows every expert every token"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_before_any_rank_starts(small, settings, ranks, words):
    arguments = [str(small[0]), *(part for s in settings for part in ("--set", s))]
    with pytest.raises(UsageError, match=words):
        plan_job(arguments, ranks)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PADDLE_TRAINERS_NUM": "two"}, "is no number"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "2"}, "2 is no rank of PADDLE_TRAINERS_NUM 2"),
        ({"PADDLE_TRAINERS_NUM": "0"}, "0 is no rank of PADDLE_TRAINERS_NUM 0"),
        ({"PADDLE_TRAINERS_NUM": "2"}, "names no port"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ENDPOINTS": "host:99999"}, "names no port"),
    ],
)
def test_an_environment_that_is_no_launchers_is_refused(monkeypatch, variables, words):
    for name in ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=words):
        Launched.from_environment()


def test_a_port_that_is_taken_is_told_in_words():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen at port {port}"):
            Rendezvous(Launched(0, 2, "127.0.0.1", port))


def test_ports_of_ranks_are_none_that_the_kernel_gives_to_connections(monkeypatch, tmp_path):
    (tmp_path / "range").write_text("30000\t60999\n")
    monkeypatch.setattr(launching, "EPHEMERAL", tmp_path / "range")
    ports = [int(e.rpartition(":")[2]) for e in free_endpoints(64)]
    assert len(set(ports)) == 64
    assert all(10000 <= p < 30000 for p in ports)
    (tmp_path / "range").write_text("1024\t60999\n")  # nothing is left below
    assert len(set(free_endpoints(8))) == 8


def test_how_a_job_ended_is_told_even_if_its_folder_takes_no_more_files(tmp_path, capsys):
    (tmp_path / "logs" / "launch.log").mkdir(parents=True)
    outcome = launch([sys.executable, "-c", "import sys; sys.exit(7)"], 1, tmp_path / "logs", io.StringIO())
    assert outcome.code == 7
    said = capsys.readouterr().err
    assert "rank 0 failed first: exit code 7" in said
    assert "launch.log not written" in said


def test_a_job_goes_on_when_nobody_reads_its_output(tmp_path):
    class Closed(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    argv = [sys.executable, "-c", "print('a line')"]
    assert launch(argv, 2, tmp_path / "logs", Closed()).code == 0
    assert (tmp_path / "logs" / "workerlog.0").read_text() == "a line\n"


LAUNCHER = """
import sys
from pathlib import Path
from dsv4.parallel.launch import launch
launch([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"], 2, Path(sys.argv[1]))
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path / "logs")], stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"up\n"
        pids = json.loads((tmp_path / "logs" / "ranks.json").read_text()).values()
        assert all(map(alive, pids))
        job.kill()
    while any(map(alive, pids)):
        time.sleep(0.01)


def test_jobs_of_one_second_have_folders_of_their_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _form: "now")
    assert [str(_new_folder()) for _ in range(3)] == ["logs/now", "logs/now-2", "logs/now-3"]


def test_logs_that_can_be_no_folder_are_told_and_never_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").symlink_to("nowhere")
    with pytest.raises(UsageError, match="no folder for logs") as caught:
        _new_folder()
    assert "--log-dir" in caught.value.advice
    Path("file").write_text("")
    with pytest.raises(UsageError, match="no folder for logs"):
        launch([sys.executable, "-c", ""], 1, Path("file/logs"), io.StringIO())
