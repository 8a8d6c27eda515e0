"""The Slurm engine on a real slurmctld with two nodes of four pretended cards each."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from matrix.host import process

from .slurm_site import (
    CHILDREN,
    Site,
    controls,
    restart_controller,
    slurm,  # noqa: F401 -- a fixture
    start_controller,
    stop_controller,
    wait_for,
)

RESET = 'echo "ConnectionResetError: [Errno 104] Connection reset by peer" >&2; exit 1'
TWELVE = {
    "j01": {"command": "sleep 1; echo one > one.txt", "cards": 1, "produces": {"path": "one.txt", "kind": "files"}},
    "j02": {"command": "sleep 1", "cards": 2},
    "j03": {"command": "sleep 1", "cards": 4},
    "j04": {"command": 'grep one "$MATRIX_HANDOFF_J01"', "cards": 1, "needs": "j01"},
    "j05": {"command": 'grep one "$MATRIX_HANDOFF_J01"', "cards": 2, "needs": "j01"},
    "j06": {"command": RESET, "cards": 1, "retries": 1, "produces": {"path": "never.txt", "kind": "files"}},
    "j07": {"command": "echo never", "cards": 1, "needs": "j06"},
    "j08": {"command": "sleep 1", "cards": 4},
    "j09": {"command": CHILDREN + "sleep 600", "cards": 1, "timeout": "6s"},
    "j10": {"command": CHILDREN + "echo up > up; sleep 600", "cards": 1},
    "j11": {"command": "kill -KILL $$", "cards": 1},
    "j12": {"command": "true", "cards": 1},
}
ENDS = {
    **dict.fromkeys(["j01", "j02", "j03", "j04", "j05", "j08", "j12"], ("passed", 1)),
    "j06": ("failed", 2), "j07": ("blocked", 0), "j09": ("timeout", 1), "j10": ("cancelled", 1), "j11": ("failed", 1),
}  # fmt: skip


def begin(site):
    site.matrix({name: dict(job) for name, job in TWELVE.items()})
    return site.start(*(("--cards", "4") if site.engine == "local" else ()))


def cancel(site, job):
    """Cancel one job as a user would: scancel, or TERM to its supervisor."""
    if site.engine == "slurm":
        subprocess.run(["scancel", f"--name={site.record()['id']}/{job}/1"], check=True)
    else:
        leader = next(p for p in site.processes_of(job) if p.pid == p.sid)
        os.kill(leader.ppid, signal.SIGTERM)


def test_twelve_jobs_end_alike_on_one_host_and_on_slurm(tmp_path, slurm):  # noqa: F811
    local = Site(tmp_path / "local", "local")
    children = []
    try:
        runs = [(site, begin(site)) for site in (local, slurm)]
        for site, _ in runs:
            wait_for(lambda site=site: (site.folder / "up").exists())
            cancel(site, "j10")
        for site, run in runs:
            said, _ = run.communicate(timeout=120)
            assert run.returncode == 1, said
            ends = {j["name"]: (j["status"], len(j["attempts"])) for j in site.record()["jobs"]}
            assert ends == ENDS, said
            assert site.job("j07")["blocked_by"] == ["j06"]
            assert site.job("j11")["attempts"][0]["signal"] == "SIGKILL"
            assert len(site.lines("children")) == 6
            children += site.living_children()
            assert site.lines("shared") == []
            assert all(len(set(uuids(a))) == TWELVE[j["name"]]["cards"] for j in site.record()["jobs"]
                       for a in j["attempts"])  # fmt: skip
    finally:
        local.close()
    assert children == []


def test_a_further_attempt_runs_on_another_node(slurm):  # noqa: F811
    """The first node on which it runs is the bad one: what is excluded is what the record says of attempt 1."""
    bad = (
        'echo $SLURMD_NODENAME >> nodes; [ $(sort -u nodes | wc -l) = 2 ] || { echo "Address already in use"; exit 1; }'
    )
    slurm.matrix({"j": {"command": bad, "cards": 1, "retries": 1}})
    document = yaml.safe_load((slurm.folder / "matrix.yaml").read_text())
    document["retry"] = {"rules": [{"categories": "port_in_use", "where": "other-host", "otherwise": "no"}]}
    (slurm.folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    code, said = slurm.run()
    assert code == 0, said
    first, second = (a["hosts"] for a in slurm.job("j")["attempts"])
    assert [*first, *second] == slurm.lines("nodes")
    assert first != second
    assert slurm.job("j")["reason"] == "passed on attempt 2 (attempt 1: port_in_use)"


def uuids(attempt):
    return [card["uuid"] for card in attempt["cards"]]


def test_a_run_outlives_its_runner_and_the_controller(slurm):  # noqa: F811
    slurm.matrix({
        "long": {"command": "echo once >> once; sleep 6; echo done"},
        "after": {"command": "true", "needs": "x"},
        "wide": {"command": "sleep 1; echo x > x", "cards": 4, "produces": {"name": "x", "path": "x", "kind": "files"}},
    })  # fmt: skip
    run = slurm.start()
    wait_for(lambda: slurm.lines("once"))
    run.kill()
    run.wait()
    restart_controller()
    code, said = slurm.run("--resume", "last")
    assert code == 0, said
    assert slurm.lines("once") == ["once"], "an attempt that went on must not be run again"
    assert [len(slurm.job(name)["attempts"]) for name in ("long", "wide", "after")] == [1, 1, 1]
    assert "done" in slurm.log("long")


@pytest.mark.soak
def test_jobs_are_submitted_once_the_controller_is_back(slurm):  # noqa: F811
    slurm.matrix({
        "first": {"command": "echo 1 > up; sleep 4; echo y > y", "produces": {"name": "y", "path": "y", "kind": "files"}},
        "second": {"command": "true", "needs": "y", "cards": 1},
    })  # fmt: skip
    run = slurm.start()
    wait_for((slurm.folder / "up").exists)
    stop_controller()
    try:
        wait_for(lambda: slurm.job("second")["status"] == "running")
    finally:
        start_controller()
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said


@pytest.mark.soak
def test_a_slurmd_killed_in_the_middle_of_a_job_is_survived(slurm):  # noqa: F811
    """Its node goes down after SlurmdTimeout (20 s); until then the job goes on, and Slurm knows of nothing."""
    slurm.matrix({
        "short": {"command": "echo once >> once; sleep 5", "cards": 4},
        "long": {"command": CHILDREN + 'if [ "$MATRIX_ATTEMPT" = 1 ]; then sleep 600; fi', "cards": 4},
    })  # fmt: skip
    run = slurm.start()
    wait_for(lambda: len(slurm.lines("children")) == 3 and slurm.lines("once"))
    place = {line.split()[0]: line.split()[1] for line in slurm.lines("begun")}
    assert len(set(place.values())) == 2
    try:
        for node in place.values():
            os.kill(int(Path(os.environ["MATRIX_TEST_SLURM"], f"slurmd.{node}.pid").read_text()), signal.SIGKILL)
        wait_for(lambda: slurm.job("short")["status"] == "passed")
        wait_for(lambda: slurm.job("long")["attempts"][0]["status"] == "error", 120)
        assert slurm.living_children() == [], "the lost node still ran the job"
    finally:
        for node in place.values():
            subprocess.run(["slurmd", "-N", node], check=True)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    assert [a["status"] for a in slurm.job("long")["attempts"]] == ["error", "passed"]
    assert slurm.lines("once") == ["once"]


def test_a_job_whose_node_is_lost_is_started_again_and_leaves_nothing_behind(slurm):  # noqa: F811
    slurm.matrix({"job": {"command": CHILDREN + 'if [ "$MATRIX_ATTEMPT" = 1 ]; then sleep 600; fi', "cards": 2}})
    run = slurm.start()
    wait_for(lambda: len(slurm.lines("children")) == 3)
    node = slurm.lines("begun")[0].split()[1]
    controls("update", f"nodename={node}", "state=down", "reason=test")
    try:
        said, _ = run.communicate(timeout=90)
    finally:
        restart_controller()  # a node that comes back so soon leaves this Slurm's count of its cards wrong
    assert run.returncode == 0, said
    first, second = slurm.job("job")["attempts"]
    assert first["status"] == "error"
    assert "NODE_FAIL" in first["causes"][0]["text"]
    assert second["status"] == "passed"
    assert {u.split("-")[0] for u in uuids(first)} == {node}
    assert len(uuids(second)) == 2
    assert slurm.living_children() == []


@pytest.mark.soak
def test_a_preempted_job_is_started_again_and_needs_no_retry(slurm):  # noqa: F811
    slurm.matrix({
        f"wide{i}": {"command": CHILDREN + 'if [ "$MATRIX_ATTEMPT" = 1 ]; then sleep 600; fi', "cards": 4} for i in (1, 2)
    })  # fmt: skip
    run = slurm.start()
    wait_for(lambda: len(slurm.lines("children")) == 6)
    urgent = ["sbatch", "--partition=urgent", "--gres=gpu:H20:4", "--output=/dev/null", "--wrap=sleep 2"]
    for _ in range(2):
        subprocess.run(urgent, check=True, capture_output=True)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    for name in ("wide1", "wide2"):
        first, second = slurm.job(name)["attempts"]
        assert (first["status"], second["status"]) == ("error", "passed")
        assert "preempted" in first["causes"][0]["text"]
    assert slurm.living_children() == []
    assert slurm.lines("shared") == []


@pytest.mark.soak
def test_ctrl_c_ends_what_runs_and_takes_what_waits_out_of_the_queue(slurm):  # noqa: F811
    jobs = {f"wide{i}": {"command": CHILDREN + "sleep 600", "cards": 4} for i in range(3)}
    slurm.matrix(jobs)
    run = slurm.start()
    wait_for(lambda: len(slurm.lines("children")) == 6)
    run.send_signal(signal.SIGINT)
    wait_for(lambda: slurm.job("wide0")["status"] != "pending")
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert {job["status"] for job in slurm.record()["jobs"]} == {"cancelled"}, said
    assert slurm.living_children() == []
    queue = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True, check=True).stdout
    assert slurm.record()["id"] not in queue


@pytest.mark.soak
def test_when_slurm_kills_everything_at_once_nothing_is_left(slurm):  # noqa: F811
    slurm.matrix({"job": {"command": CHILDREN + "sleep 600", "cards": 1}})
    run = slurm.start()
    wait_for(lambda: len(slurm.lines("children")) == 3)
    leader = next(p for p in slurm.processes_of("job") if p.pid == p.sid)
    supervisor = process.read(leader.ppid)
    agents = [p for p in process.table().values() if b"slurm.agent" in cmdline(p.pid)]
    for pid in [supervisor.pid, *(p.pid for p in agents if p.pid != os.getpid() and p.ppid != 1)]:
        os.kill(pid, signal.SIGKILL)
    said, _ = run.communicate(timeout=60)
    assert slurm.job("job")["status"] == "error", said
    assert slurm.job("job")["attempts"][0]["causes"][0]["category"] == "runner_lost"
    assert slurm.living_children() == []


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_what_slurm_never_takes_is_said_at_once(slurm):  # noqa: F811
    slurm.matrix({"job": {"command": "true", "cards": {"count": 1, "model": "B200"}}})
    code, said = slurm.run()
    assert code == 2
    assert "the cluster has 2 nodes: 4 × H20, 4 × H20" in said
    slurm.matrix({"job": {"command": "true", "cards": 1}})
    code, said = slurm.run(MATRIX_SLURM_ARGS="--partition=nope")
    assert code == 3, said
    assert slurm.job("job")["attempts"][0]["causes"][0]["category"] == "cannot_start"
    assert "nope" in slurm.job("job")["attempts"][0]["causes"][0]["text"]


@pytest.mark.soak
def test_a_job_that_is_requeued_from_outside_is_started_again_by_the_run_alone(slurm):  # noqa: F811
    slurm.matrix({"job": {"command": CHILDREN + 'if [ "$MATRIX_ATTEMPT" = 1 ]; then sleep 600; fi', "cards": 4}})
    run = slurm.start(MATRIX_SLURM_ARGS="--requeue")  # a site may want it; we submit with --no-requeue
    wait_for(lambda: len(slurm.lines("children")) == 3)
    controls("requeue", subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True).stdout.split()[0])
    said, _ = run.communicate(timeout=90)
    assert run.returncode == 0, said
    first, second = slurm.job("job")["attempts"]
    assert "put the job back into its queue" in first["causes"][0]["text"]
    assert second["status"] == "passed"
    assert len(slurm.lines("begun")) == 2, "Slurm's own second start does nothing"
    assert slurm.living_children() == []


@pytest.mark.soak
def test_a_node_that_does_not_see_the_runs_folder_is_left_out_and_named(slurm):  # noqa: F811
    """gpu2 has another disk in its place."""
    slurm.matrix({
        "wide": {"command": "sleep 1", "cards": 4}, "other": {"command": "sleep 1", "cards": 4},
        "both": {"command": "true", "cards": 8, "nodes": 2},
    })  # fmt: skip
    blind = f"mount -t tmpfs none {slurm.folder} && cd / && exec slurmd -N gpu2"
    try:
        stop_node("gpu2")
        subprocess.run(["unshare", "-m", "sh", "-c", blind], check=True)
        code, said = slurm.run()
    finally:
        stop_node("gpu2")
        subprocess.run(["slurmd", "-N", "gpu2"], check=True)
    assert code == 3, said
    assert [slurm.job(name)["status"] for name in ("wide", "other", "both")] == ["passed", "passed", "error"]
    late = next(job for job in (slurm.job("wide"), slurm.job("other")) if len(job["attempts"]) == 2)
    for text in (late["attempts"][0]["causes"][0]["text"], slurm.job("both")["attempts"][0]["causes"][0]["text"]):
        assert re.search(r"gpu2|gpu\[1-2\]", text)
        assert re.search(r"is (the|this) folder .*on (that|the) node too, at the same place", text)


def stop_node(name):
    pid = int(Path(os.environ["MATRIX_TEST_SLURM"], f"slurmd.{name}.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: process.read(pid) is None or not process.read(pid).alive)


TRAIN = Path(__file__).with_name("two_nodes.py")


def test_a_job_on_two_nodes_trains_with_two_processes_on_each(slurm):  # noqa: F811
    start = f'for i in 0 1; do LOCAL_RANK=$i python {TRAIN} & pids="$pids $!"; done; for p in $pids; do wait $p; done'
    slurm.matrix({"train": {"command": start, "cards": 4, "nodes": 2, "expects": {"steps": 5}}})
    code, said = slurm.run()
    assert code == 0, said + slurm.log("train")
    nodes = {line.split()[1] for line in slurm.lines("begun")}
    assert nodes == {"gpu1", "gpu2"}
    cards = uuids(slurm.job("train")["attempts"][0])
    assert {card.split("-")[0] for card in cards} == nodes
    assert len(set(cards)) == 4
    finals = {line.split("final ")[1] for line in slurm.log("train").splitlines() if "final " in line}
    assert len(finals) == 1, "all four processes hold the same weights after the last step"


@pytest.mark.soak
def test_paddles_launcher_needs_no_option_to_train_on_two_nodes(slurm):  # noqa: F811
    pytest.importorskip("paddle")
    script = TRAIN.with_name("two_nodes_paddle.py")
    command = f"python -m paddle.distributed.launch --nproc_per_node 2 --log_dir log$NODE_RANK {script}"
    env = {"PADDLE_DISTRI_BACKEND": "gloo", "OMP_NUM_THREADS": "1"}
    slurm.matrix({"train": {"command": command, "cards": 4, "nodes": 2, "env": env, "timeout": "140s"}})
    code, said = slurm.run()
    assert code == 0, said + slurm.log("train")
    logs = "".join(path.read_text() for path in slurm.folder.glob("log*/workerlog.*"))
    assert {line.split(" of ")[0] for line in logs.splitlines() if " of 4 final " in line} == {
        f"rank {i}" for i in range(4)
    }
    assert len({line.split("final ")[1] for line in logs.splitlines() if "final " in line}) == 1


@pytest.mark.soak
def test_when_one_node_of_two_fails_the_other_is_ended_and_the_first_is_the_cause(slurm):  # noqa: F811
    command = CHILDREN + 'if [ $NODE_RANK = 1 ]; then echo "ValueError: bad shard" >&2; exit 7; else sleep 600; fi'
    slurm.matrix({"job": {"command": command, "cards": 8, "nodes": 2}})
    code, said = slurm.run()
    assert code == 1, said
    [attempt] = slurm.job("job")["attempts"]
    assert attempt["exit_code"] == 7
    assert "ValueError: bad shard" in attempt["causes"][0]["text"]
    assert slurm.living_children() == []
