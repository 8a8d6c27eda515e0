"""Leases between processes that are killed at any moment."""

import itertools
import json
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matrix.host import process
from matrix.host.leases import Busy, LeaseError, Leases

CARDS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]


@pytest.fixture
def leases(tmp_path):
    return Leases(str(tmp_path / "leases"))


def test_folder_and_files_are_for_every_user(leases):
    leases.take(CARDS[:1], "t").release()
    assert stat.S_IMODE(Path(leases.directory).stat().st_mode) == 0o1777
    assert stat.S_IMODE(Path(leases.directory, "GPU-a.lock").stat().st_mode) == 0o666


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LeaseError, match="file/leases"):
        Leases(str(tmp_path / "file" / "leases"))


def test_a_symbolic_link_in_the_place_of_a_lock_is_not_followed(leases, tmp_path):
    (tmp_path / "victim").write_text("mine")
    Path(leases.directory, "GPU-a.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        leases.take(["GPU-a"], "t")
    assert (tmp_path / "victim").read_text() == "mine"


def test_all_or_nothing(leases):
    held = leases.take(["GPU-b"], "one")
    with pytest.raises(Busy, match="GPU-b"):
        leases.take(CARDS, "two")
    assert leases.free(CARDS) == ["GPU-a", "GPU-c", "GPU-d"]
    held.release()
    leases.take(CARDS, "two").release()


def test_shared_leases_go_along_with_shared_ones_only(leases):
    one = leases.take(["GPU-a"], "one", shared=True)
    two = leases.take(["GPU-a"], "two", shared=True)
    assert [h["tag"] for h in leases.holders("GPU-a")] == ["one", "two"]
    assert (leases.free(CARDS[:1]), leases.free(CARDS[:1], shared=True)) == ([], ["GPU-a"])
    with pytest.raises(Busy):
        leases.take(["GPU-a"], "three")
    one.release()
    assert [h["tag"] for h in leases.holders("GPU-a")] == ["two"]
    two.release()
    leases.take(["GPU-a"], "three").release()


def test_a_lease_lives_as_long_as_any_copy_and_release_frees_it_for_all(leases):
    lease = leases.take(["GPU-a"], "t")
    child = subprocess.Popen(["sleep", "60"], pass_fds=list(lease.fds.values()))
    lease.close()
    assert leases.free(["GPU-a"]) == []
    child.kill()
    child.wait()
    assert leases.free(["GPU-a"]) == ["GPU-a"]
    lease = leases.take(["GPU-a"], "t2")
    child = subprocess.Popen(["sleep", "60"], pass_fds=list(lease.fds.values()))
    lease.release()
    assert leases.free(["GPU-a"]) == ["GPU-a"]
    child.kill()
    child.wait()


def test_who_leases_next_ends_what_carries_the_tag_of_a_dead_holder(leases):
    lease = leases.take(["GPU-a"], "run/old/1")
    old = subprocess.Popen(
        ["setsid", "-f", "bash", "-c", "trap '' TERM; exec sleep 600"],
        env={**os.environ, process.TAG: "outer:run/old/1"},
    )
    old.wait()
    lease.close()  # as if every holder had been killed: the entry stays
    assert len(process.of_job("run/old/1")) == 1
    leases.take(["GPU-a"], "new").release()
    assert process.of_job("run/old/1") == []


def test_a_tag_is_matched_whole(leases):
    child = subprocess.Popen(["sleep", "600"], env={process.TAG: "run/old/11"})
    try:
        leases.take(["GPU-a"], "run/old/1").close()
        leases.take(["GPU-a"], "new").release()
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_job_that_one_runs_in_is_never_ended(leases, monkeypatch):
    monkeypatch.setenv(process.TAG, "run/me/1")
    leases.take(["GPU-a"], "run/me/1").close()
    with pytest.raises(Busy, match="belongs to"):
        leases.take(["GPU-a"], "inner")


@pytest.mark.parametrize("junk", [b"", b"{half", b"\xff\xff\n[]\n3\n", b'{"tag": 5, "pid": "x"}\n'])
def test_junk_in_a_lock_file_keeps_nobody_from_the_card(leases, junk):
    leases.take(["GPU-a"], "t").release()
    Path(leases.directory, "GPU-a.lock").write_bytes(junk)
    leases.take(["GPU-a"], "new").release()


# Each worker writes when it got and when it gave back its cards, with one clock for all processes.
WORKER = """
import json, os, random, sys, time
from matrix.host.leases import Busy, Leases
folder, out, seed, until = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
r, leases, cards = random.Random(seed), Leases(folder), json.loads(sys.argv[5])
with open(out, "a", buffering=1) as f:
    while time.monotonic() < until:
        want = r.sample(cards, r.choice([1, 1, 2, 4]))
        try:
            lease = leases.take(want, f"w{seed}/{time.monotonic_ns()}")
        except Busy:
            time.sleep(r.random() * 0.02)
            continue
        begin = time.monotonic()
        f.write(json.dumps(["begin", want, begin]) + "\\n")
        time.sleep(r.random() * 0.02)
        f.write(json.dumps(["end", want, begin, time.monotonic()]) + "\\n")
        lease.release()
"""


@pytest.mark.parametrize(
    ("workers", "kills", "seconds"), [(6, 3, 2.5), pytest.param(20, 10, 12.0, marks=pytest.mark.soak)]
)
def test_contention_with_kills_never_overlaps(leases, tmp_path, workers, kills, seconds):
    until = time.monotonic() + seconds
    r = random.Random(7)
    children = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WORKER,
                leases.directory,
                str(tmp_path / f"w{i}"),
                str(i),
                str(until),
                json.dumps(CARDS),
            ]
        )
        for i in range(workers)
    ]
    died = {}
    while len(died) < kills:
        time.sleep(seconds / 3 / kills)
        i = r.choice([i for i in range(workers) if i not in died])
        if (tmp_path / f"w{i}").exists():
            died[i] = time.monotonic()
            children[i].send_signal(signal.SIGKILL)
            children[i].wait()
    for child in children:
        child.wait()
    spans = {card: [] for card in CARDS}
    count = 0
    for i in range(workers):
        open_lease = None
        for line in (tmp_path / f"w{i}").read_text().splitlines():
            event = json.loads(line) if line.endswith("]") else None
            if event and event[0] == "begin":
                open_lease = event
            elif event:
                count += 1
                open_lease = None
                for card in event[1]:
                    spans[card].append((event[2], event[3]))
        if open_lease:  # killed while it held them
            for card in open_lease[1]:
                spans[card].append((open_lease[2], died[i]))
    assert count > 10 * workers
    for held in spans.values():
        assert [(a, b) for a, b in itertools.pairwise(sorted(held)) if b[0] < a[1]] == []
    assert leases.free(CARDS) == CARDS


def hold(directory, ready):
    lease = Leases(directory).take(CARDS, "held")
    ready.set()
    time.sleep(600)
    lease.release()


def test_a_killed_holder_frees_its_cards(leases):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=hold, args=(leases.directory, ready))
    child.start()
    assert ready.wait(60)
    assert leases.free(CARDS) == []
    child.kill()
    child.join()
    assert leases.free(CARDS) == CARDS


def test_one_runner_at_a_time_may_ask_others_to_leave_cards(leases):
    other = Leases(leases.directory)
    assert leases.reserve(["GPU-a", "GPU-b"], "wide")
    assert leases.reserved_by_others() == []
    assert other.reserved_by_others() == ["GPU-a", "GPU-b"]
    assert not other.reserve(["GPU-c"], "wide too")
    assert leases.reserve(["GPU-d"], "wide")
    assert other.reserved_by_others() == ["GPU-d"]
    leases.reserve([], "")
    assert other.reserved_by_others() == []
    assert other.reserve(["GPU-c"], "wide too")
    other.reserve([], "")
