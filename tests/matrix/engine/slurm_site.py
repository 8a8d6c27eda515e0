"""A matrix folder on the real Slurm of the tests, and what its nodes must never do: share a card, leave a process."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from matrix.host import process
from tests.services import need

# Holds a lock for every card of the job, as long as any process of it lives; says so when another has one already.
CARDS = """
node=${SLURMD_NODENAME:-here}
numbers=${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}
for n in ${numbers//,/ }; do
  exec {fd}>>"$SITE/cards/$node-$n"
  flock -n $fd || echo "$MATRIX_JOB $node-$n" >> "$SITE/shared"
done
echo "$MATRIX_JOB $node $numbers" >> "$SITE/begun"
"""

# Three children: a plain one, one that ignores TERM, one in a session of its own.
CHILDREN = """
sleep 600 & echo $! >> "$SITE/children"
bash -c 'trap "" TERM; while :; do sleep 1; done' & echo $! >> "$SITE/children"
setsid bash -c 'echo $$ >> "$SITE/children"; while :; do sleep 1; done' &
"""


def wait_for(condition, limit=60.0):
    """Poll until the condition holds."""
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, "did not come true"
        time.sleep(0.05)


class Site:
    """A folder with a matrix, run by the real command."""

    def __init__(self, folder: Path, engine: str = "slurm") -> None:
        self.folder, self.engine = folder, engine
        (folder / "cards").mkdir(parents=True)
        self.started: list[subprocess.Popen[str]] = []

    def matrix(self, jobs):
        """Write the matrix; every job's command sees to the cards first."""
        for job in jobs.values():
            job["command"] = CARDS + job["command"]
        text = yaml.safe_dump({"defaults": {"timeout": "60s"}, "suites": {"s": {"jobs": jobs}}})
        (self.folder / "matrix.yaml").write_text(text)

    def environment(self, **more):
        return {
            **os.environ, "SITE": str(self.folder), "MATRIX_SLURM_POLL": "0.5", "COLUMNS": "100",
            "MATRIX_LEASE_DIR": str(self.folder / "leases"), "MATRIX_HISTORY": f"sqlite:///{self.folder}/h.sqlite", **more,
        }  # fmt: skip

    def start(self, *arguments, verb="run", **env):
        """Start `matrix run`."""
        chosen = ("--engine", self.engine) if verb == "run" and "--resume" not in arguments else ()
        child = subprocess.Popen(
            [sys.executable, "-c", "from matrix.cli import main; main()", verb, *chosen, *arguments],
            cwd=self.folder, env=self.environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.started.append(child)
        return child

    def run(self, *arguments, **env):
        """Run it to its end; the exit code and what it said."""
        child = self.start(*arguments, **env)
        said, _ = child.communicate(timeout=150)
        return child.returncode, said

    def record(self):
        [path] = sorted((self.folder / ".matrix" / "runs").glob("*/run.json"))
        return json.loads(path.read_text())

    def job(self, name):
        return next(job for job in self.record()["jobs"] if job["name"] == name)

    def log(self, name, attempt=1):
        [path] = (self.folder / ".matrix" / "runs").glob(f"*/logs/{name}/{attempt}.log")
        return path.read_text()

    def lines(self, name):
        path = self.folder / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def living_children(self):
        found = [process.read(int(pid)) for pid in self.lines("children")]
        return [p.pid for p in found if p and p.alive]

    def processes_of(self, job, attempt=1):
        return process.of_job(f"{self.record()['id']}/{job}/{attempt}")

    def close(self):
        for child in self.started:
            if child.poll() is None:
                child.kill()
                child.wait()
        if self.engine == "slurm" and (self.folder / ".matrix").exists():
            names = [f"--name={self.record()['id']}/{job['name']}/{a['n']}" for job in self.record()["jobs"]
                     for a in job["attempts"]]  # fmt: skip
            for name in names:
                subprocess.run(["scancel", name], check=False)
        for pid in self.living_children():
            os.kill(pid, 9)


def controls(*command):
    subprocess.run(["scontrol", *command], check=True, capture_output=True)


@contextlib.contextmanager
def alone():
    """One test at a time has the cluster."""
    with Path(need("MATRIX_TEST_SLURM"), "tests.lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        wait_for(lambda: idle() == {"gpu1", "gpu2"})
        # This Slurm miscounts the cards of a node that got a job before it had spoken to a restarted controller.
        while not all_cards_are_free():
            restart_controller()
        yield


def all_cards_are_free():
    """Whether Slurm gives out all eight cards now."""
    command = ["srun", "--immediate=8", "-N2", "--gres=gpu:H20:4", "sh", "-c", "echo $SLURM_STEP_GPUS"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return sorted(done.stdout.split()) == ["0,1,2,3", "0,1,2,3"]


def controller():
    return int(Path(os.environ["MATRIX_TEST_SLURM"], "slurmctld.pid").read_text())


def stop_controller():
    pid = controller()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: process.read(pid) is None or not process.read(pid).alive)


def start_controller():
    subprocess.run(["slurmctld"], check=True)
    wait_for(lambda: subprocess.run(["scontrol", "ping"], check=False, capture_output=True).returncode == 0)


def restart_controller():
    stop_controller()
    start_controller()


def idle():
    said = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T"], capture_output=True, text=True, check=False
    )
    return {line.split()[0] for line in said.stdout.splitlines() if line.split()[1] == "idle"}


@pytest.fixture
def slurm(tmp_path):
    need("SLURM_CONF")
    site = Site(tmp_path / "site")
    with alone():
        yield site
        site.close()
