"""A rank that dies, raises or hangs: the job ends, that rank is named, no half checkpoint, and the run can go on."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dsv4 import checkpoint
from dsv4.align.compare import compare
from dsv4.align.record import read_record
from dsv4.parallel.launch import launch
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import REFERENCE, small_run
from tests.dsv4.parallel.jobs import FILES, assert_close, reference


@pytest.fixture
def endless(tmp_path):
    """The small configuration, and tokens that never end."""
    config, _ = small_run(tmp_path)
    np.save(tmp_path / "tokens.npy", np.random.default_rng(3).integers(0, 32, 5000).astype(np.int32))
    return config, tmp_path / "tokens.npy"


def train(folder, logs, ranks, config, tokens, *settings, init=None):
    """A job that saves every step and goes on from what it saved."""
    argv = [sys.executable, "-u", "-W", "ignore", "-m", "dsv4", "train", str(config), "--tokens", str(tokens)]
    argv += ["--record", str(folder / "run.csv"), "--save", str(folder / "ck"), "--save-every", "1", "--keep", "3"]
    argv += ["--resume", str(folder / "ck"), *(["--init", str(init)] if init else [])]
    for setting in settings:
        argv += ["--set", setting]
    return launch(argv, ranks, logs, io.StringIO())


def hurt(logs, victim, after_steps, wait, number):
    """Send a signal to a rank some time after it has finished so many steps; the moment, or None if it had ended."""
    log = logs / f"workerlog.{victim}"
    done = f"step {after_steps}/" if victim else f"global_step: {after_steps}/"
    for _ in range(6000):
        if log.exists() and done in log.read_text():
            break
        time.sleep(0.02)
    else:
        wait = 0.0  # too late: end the job, so that the test can tell what it did
    time.sleep(wait)
    try:
        os.kill(json.loads((logs / "ranks.json").read_text())[str(victim)], number)
    except ProcessLookupError:
        return None
    return time.monotonic()


def hurt_while_training(folder, name, ranks, victim, number, *arguments, after_steps=1, wait=0.0, init=None):
    """Train and hurt one rank; returns the outcome and the seconds between the two."""
    logs = folder / name
    moments = []
    thread = threading.Thread(target=lambda: moments.append(hurt(logs, victim, after_steps, wait, number)))
    thread.start()
    outcome = train(folder, logs, ranks, *arguments, init=init)
    ended = time.monotonic()
    thread.join()
    assert f"step: {after_steps}/" in (logs / "workerlog.0").read_text(), f"{name} did not reach step {after_steps}"
    return outcome, ended - (moments[0] or ended)


def named_by_triage(logs):
    done = subprocess.run(
        [sys.executable, "-m", "matrix", "triage", str(logs), "--json"], capture_output=True, text=True, check=True
    )
    (report,) = json.loads(done.stdout)["logs"]
    assert report["status"] == "failed"
    return report["causes"][0]["rank"]


def assert_whole(folder):
    for path in checkpoint.list_checkpoints(folder):
        checkpoint.verify(path)


def test_a_killed_rank_is_named_and_the_run_goes_on_on_fewer(endless, tmp_path):
    settings = ("expert_parallel=2", "steps=400")
    outcome, _ = hurt_while_training(tmp_path, "killed", 2, 1, signal.SIGKILL, *endless, *settings)
    assert (outcome.first.number, outcome.first.code) == (1, -signal.SIGKILL)
    assert outcome.code == 3
    assert named_by_triage(tmp_path / "killed") == 1
    assert "rank 1 failed first: killed by SIGKILL" in (tmp_path / "killed" / "launch.log").read_text()
    assert_whole(tmp_path / "ck")
    saved = checkpoint.latest(tmp_path / "ck")
    reached = int(saved.name.removeprefix("step-")) + 2 if saved else 2
    again = train(tmp_path, tmp_path / "again", 1, *endless, f"steps={reached}")
    assert again.code == 0, (tmp_path / "again" / "workerlog.0").read_text()
    rows = read_record(tmp_path / "run.csv").rows
    assert [(r.step, r.micro) for r in rows] == [(s, m) for s in range(1, reached + 1) for m in range(2)]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ranks_killed_at_twenty_random_moments_are_named_within_ten_seconds_and_the_run_goes_on(endless, tmp_path):
    """Each job resumes what the one before left and is killed no earlier than five steps on; no loss is touched."""
    config, tokens = endless
    moments, layout = random.Random(7), ("pipeline_parallel=2", "expert_parallel=2")
    for turn in range(20):
        victim, start = turn % 4, _saved_step(tmp_path)
        outcome, seconds = hurt_while_training(
            tmp_path, f"kill{turn}", 4, victim, signal.SIGKILL, config, tokens, *layout, "steps=100000",
            after_steps=start + 5, wait=moments.uniform(0, 1),
        )  # fmt: skip
        assert outcome.first.number == victim, turn
        assert named_by_triage(tmp_path / f"kill{turn}") == victim, turn
        assert seconds < 10, turn
        assert_whole(tmp_path / "ck")
        print(f"kill {turn} of rank {victim} after step {start + 5}: ended in {seconds:.2f} s")
    last = _saved_step(tmp_path) + 5
    assert train(tmp_path, tmp_path / "end", 4, config, tokens, *layout, f"steps={last}").code == 0
    options = RunOptions(tokens=tokens, record=tmp_path / "one.csv")
    run_training(load_run_config(config, (f"steps={last}",)), options)
    assert_close(read_record(tmp_path / "run.csv"), read_record(tmp_path / "one.csv"))


def _saved_step(folder):
    path = checkpoint.latest(folder / "ck")
    return int(path.name.removeprefix("step-")) if path else 0


@pytest.mark.align
@pytest.mark.timeout(3000)
def test_after_kills_of_each_rank_the_run_still_equals_megatron(tmp_path):
    arguments = (REFERENCE / "tiny_config.json", FILES["tokens"])
    for turn, (step, victim) in enumerate([(11, 0), (37, 1), (70, 3)]):
        outcome, seconds = hurt_while_training(
            tmp_path, f"kill{turn}", 4, victim, signal.SIGKILL, *arguments, "expert_parallel=4", after_steps=step,
            wait=0.3, init=FILES["init"],
        )  # fmt: skip
        assert outcome.first.number == victim
        assert seconds < 10
        assert named_by_triage(tmp_path / f"kill{turn}") == victim
        print(f"kill of rank {victim} after step {step}: ended in {seconds:.2f} s")
    done = train(tmp_path, tmp_path / "end", 2, *arguments, "expert_parallel=2", init=FILES["init"])
    assert done.code == 0
    assert compare(read_record(tmp_path / "run.csv"), reference()).equal


@pytest.mark.soak
def test_a_rank_that_hangs_is_named_and_shows_its_stacks(endless, tmp_path):
    settings = ("data_parallel=2", "steps=100000")
    outcome, _ = hurt_while_training(tmp_path, "hung", 2, 1, signal.SIGSTOP, *endless, *settings)
    assert outcome.code == 3
    assert outcome.hung == [1]
    assert "all others waited for rank 1" in (tmp_path / "hung" / "launch.log").read_text()
    assert named_by_triage(tmp_path / "hung") == 1


def test_a_rank_that_raises_gives_the_job_its_exit_code(endless, tmp_path):
    config, tokens = endless
    outcome = train(tmp_path, tmp_path / "logs", 2, config, tokens, "data_parallel=2", "init_std=1e300")
    assert outcome.first is not None
    assert outcome.code == 1
    assert "is not finite" in outcome.first.log.read_text()


def test_a_rank_that_alone_has_bad_data_is_named_and_not_its_neighbour(endless, tmp_path):
    """The other loses its peer a moment later, and exits with that."""
    config, tokens = endless
    ids = np.load(tokens)
    ids[3 * 64 + 37] = 77  # step 4, the second micro-batch, that of rank 1; the vocabulary has 32
    np.save(tokens, ids)
    outcome = train(tmp_path, tmp_path / "logs", 2, config, tokens, "expert_parallel=2", "steps=100")
    assert (outcome.first.number, outcome.code) == (1, 2)
    assert "step 4 micro 1: token 77" in outcome.first.log.read_text()
    assert "rank 0 lost a peer" in (tmp_path / "logs" / "workerlog.0").read_text()
    assert named_by_triage(tmp_path / "logs") == 1


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV], ids=lambda n: n.name)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_aborts_is_named(endless, tmp_path, number, victim):
    settings = ("data_parallel=2", "steps=100000")
    outcome, seconds = hurt_while_training(tmp_path, "aborted", 2, victim, number, *endless, *settings)
    assert (outcome.first.number, outcome.first.code) == (victim, -number)
    assert seconds < 10
    assert named_by_triage(tmp_path / "aborted") == victim


@pytest.mark.soak
@pytest.mark.parametrize("way", [(), ("--sync-save",)], ids=["beside", "sync"])
def test_a_checkpoint_that_no_longer_fits_on_the_disk_ends_the_job_in_words_and_leaves_none(endless, tmp_path, way):
    """A limit on the size of files, below that of the tensors and above that of the logs, stands for the full disk."""
    config, tokens = endless
    argv = [sys.executable, "-W", "ignore", "-m", "dsv4", "launch", "--log-dir", tmp_path / "logs", config, *way]
    argv += ["--tokens", tokens, "--save", tmp_path / "ck", "--save-every", "2", "--set", "expert_parallel=2"]
    limited = ["bash", "-c", 'ulimit -f 40; exec "$@"', "bash", *map(str, argv), "--set", "steps=100"]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "failed first: exit code 3" in done.stderr
    logs = "".join((tmp_path / "logs" / f"workerlog.{r}").read_text() for r in (0, 1))
    assert "the checkpoint was not written" in logs
    assert "File too large" in logs
    assert "Traceback" not in logs
    assert checkpoint.list_checkpoints(tmp_path / "ck") == []
    assert list((tmp_path / "ck").glob("*/*.safetensors")) == []


def test_logs_of_another_run_are_not_mixed_with_these(endless, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "workerlog.0").write_text("old")
    with pytest.raises(Exception, match="holds logs of another run"):
        train(tmp_path, tmp_path / "logs", 1, *endless)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["scheduler", "ctrl-c"])
def test_a_job_that_is_asked_to_stop_saves_between_two_steps_on_all_ranks(endless, tmp_path, number):
    """Ctrl-C in a terminal reaches the ranks, too; it is the launcher's to tell them."""
    config, tokens = endless
    argv = [sys.executable, "-W", "ignore", "-m", "dsv4", "launch", "--log-dir", tmp_path / "logs", config]
    argv += ["--tokens", tokens, "--save", tmp_path / "ck", "--record", tmp_path / "run.csv"]
    argv += ["--set", "data_parallel=2", "--set", "steps=100000"]
    job = subprocess.Popen(
        [str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    for line in job.stdout:
        if line.startswith("global_step"):
            break
    # The launcher is to be small and quick to start: Paddle is the ranks' matter.
    assert "libpaddle" not in Path(f"/proc/{job.pid}/maps").read_text()
    if number == signal.SIGINT:
        os.killpg(job.pid, number)
    else:
        job.terminate()
    _, err = job.communicate()
    assert job.returncode == 128 + number, err
    assert f"Terminating with signal {number:d}" in err
    path = checkpoint.latest(tmp_path / "ck")
    checkpoint.verify(path)
    last = read_record(tmp_path / "run.csv").rows[-1]
    assert path.name == f"step-{last.step:08d}"
    assert "stopped by SIGTERM" in (tmp_path / "logs" / "workerlog.1").read_text()
