"""Checkpoints are whole and unaltered, or refused by name."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from safetensors import SafetensorError

from dsv4 import checkpoint
from dsv4.errors import Dsv4Error, UsageError
from dsv4.parallel.checkpoint import RankCheckpoints

GROUPS = {"model": {"w": np.arange(6.0).reshape(2, 3)}, "optimizer": {"w/momentum": np.ones(3, np.float32)}}


def test_what_is_written_is_read_back(tmp_path):
    path = checkpoint.write(tmp_path, 7, GROUPS, {"data_position": 14})
    loaded = checkpoint.read(path)
    assert (loaded.step, loaded.state) == (7, {"data_position": 14})
    assert np.array_equal(loaded.groups["model"]["w"], GROUPS["model"]["w"])
    assert loaded.groups["optimizer"]["w/momentum"].dtype == np.float32


def test_the_newest_is_found_and_a_single_one_is_itself(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    checkpoint.write(tmp_path, 9, GROUPS, {})
    newest = checkpoint.write(tmp_path, 10, GROUPS, {})
    (tmp_path / "notes").mkdir()
    assert checkpoint.latest(tmp_path) == newest
    assert checkpoint.latest(newest) == newest


def cut(file):
    file.write_bytes(file.read_bytes()[:-5])


def flip(file):
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


def edit(file):
    file.write_text(file.read_text().replace('"data_position": 14', '"data_position": 15'))


@pytest.mark.parametrize(
    ("name", "harm", "why"),
    [
        ("model.safetensors", cut, "it was cut"),
        ("optimizer.safetensors", flip, "was altered"),
        ("optimizer.safetensors", lambda f: f.unlink(), "is missing"),
        ("manifest.json", cut, "altered"),
        ("manifest.json", edit, "was altered: its own digest"),
        ("manifest.json", lambda f: f.unlink(), "cannot be read"),
        ("manifest.json", lambda f: f.write_text("[]"), "not a manifest"),
        ("extra.bin", lambda f: f.write_text(""), "is not part of this checkpoint"),
    ],
)
def test_a_cut_or_altered_file_is_refused_by_name(tmp_path, name, harm, why):
    path = checkpoint.write(tmp_path, 7, GROUPS, {"data_position": 14})
    harm(path / name)
    with pytest.raises(UsageError) as caught:
        checkpoint.read(path)
    assert str(path / name) in caught.value.message
    assert why in caught.value.message


@pytest.mark.parametrize(
    "harm",
    [
        lambda m: m.pop("files"),
        lambda m: m.pop("state"),
        lambda m: m.update(step="7"),
        lambda m: m.update(state=[]),
        lambda m: m["files"].update({"model.safetensors": []}),
        lambda m: m["files"].update({"../model.safetensors": m["files"]["model.safetensors"]}),
    ],
)
def test_a_manifest_of_another_form_is_refused_though_its_digest_fits(tmp_path, harm):
    path = checkpoint.write(tmp_path, 7, GROUPS, {})
    manifest = json.loads((path / "manifest.json").read_text())
    harm(manifest)
    manifest["sha256"] = checkpoint._digest(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))
    for way in (checkpoint.verify, checkpoint.read):
        with pytest.raises(UsageError, match="no checkpoint of this program"):
            way(path)


def no_space(_arrays, path):
    path.write_bytes(b"what fitted")
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_checkpoint_that_does_not_fit_leaves_nothing_of_itself(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, 7, GROUPS, {})
    monkeypatch.setattr(checkpoint, "save_file", no_space)
    with pytest.raises(Dsv4Error, match="No space left"):
        checkpoint.write(tmp_path, 8, GROUPS, {})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000007"]
    checkpoint.verify(tmp_path / "step-00000007")


def test_a_rank_that_cannot_write_its_part_takes_it_back_and_the_others_are_not_named(tmp_path, monkeypatch):
    """Rank 0 waits for the part that never comes until the job fails; nothing is called a checkpoint."""
    arrays = {"model": {"w": np.ones(3)}}
    zero = RankCheckpoints(tmp_path, rank=0, world=2, job="a")
    one = RankCheckpoints(tmp_path, rank=1, world=2, job="a")
    zero.save(1, arrays, {})
    while not list(tmp_path.glob("*/model-00001-of-00002.safetensors")):
        time.sleep(0.01)
    monkeypatch.setattr(checkpoint, "save_file", no_space)
    try:
        with pytest.raises(Dsv4Error, match=r"not written: .*No space left"), one:
            one.save(1, arrays, {})
    finally:
        zero.__exit__(Dsv4Error, Dsv4Error("a peer is gone"), None)
    assert checkpoint.list_checkpoints(tmp_path) == []
    assert [p.name for p in tmp_path.glob("*/*.safetensors")] == ["model-00001-of-00002.safetensors"]


def test_leftovers_of_a_killed_writer_are_not_seen_and_are_removed(tmp_path):
    partial = tmp_path / ".unfinished-step-00000008"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_text("half")
    assert checkpoint.list_checkpoints(tmp_path) == []
    checkpoint.write(tmp_path, 8, GROUPS, {})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000008"]


def test_a_failed_background_save_is_an_error_and_not_a_silence(tmp_path):
    with checkpoint.Writer(tmp_path / "ck") as writer:
        (tmp_path / "ck").rmdir()
        (tmp_path / "ck").write_text("a file where the folder was")
        writer.save(1, GROUPS, {})
        with pytest.raises(Dsv4Error, match="the checkpoint was not written"):
            writer.wait()


def test_two_runs_cannot_save_to_one_folder(tmp_path):
    with checkpoint.Writer(tmp_path), pytest.raises(UsageError, match="another run is saving here"):
        checkpoint.Writer(tmp_path)
    with checkpoint.Writer(tmp_path) as writer:
        writer.save(1, GROUPS, {})
    assert checkpoint.latest(tmp_path) is not None


def test_saving_the_same_step_again_replaces_it(tmp_path):
    checkpoint.write(tmp_path, 1, GROUPS, {"try": 1})
    checkpoint.write(tmp_path, 1, GROUPS, {"try": 2})
    assert checkpoint.read(tmp_path / "step-00000001").state == {"try": 2}


WRITER = """
    import sys, time, numpy as np
    from pathlib import Path
    from dsv4 import checkpoint
    groups = {"model": {f"w{i}": np.full(20_000, float(i)) for i in range(20)}}
    print("go", flush=True)
    for step in range(1, 10_000):
        checkpoint.write(Path(sys.argv[1]), step, groups, {})
        checkpoint.keep_last(Path(sys.argv[1]), 2)
"""


def kill_while_writing(folder, milliseconds):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), folder], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    try:
        process.wait(milliseconds / 1000)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for path in checkpoint.list_checkpoints(folder):
        assert checkpoint.read(path).groups["model"]["w3"][0] == 3.0


def test_a_writer_killed_at_any_moment_leaves_only_whole_checkpoints(tmp_path):
    for milliseconds in (40, 75, 110):
        kill_while_writing(tmp_path, milliseconds)


@pytest.mark.soak
def test_a_writer_killed_at_many_moments_leaves_only_whole_checkpoints(tmp_path):
    for milliseconds in np.random.default_rng(0).uniform(1, 200, 100):
        kill_while_writing(tmp_path, milliseconds)


def test_the_manifest_lists_bytes_and_digests(tmp_path):
    path = checkpoint.write(tmp_path, 1, GROUPS, {})
    files = json.loads((path / "manifest.json").read_text())["files"]
    assert files["model.safetensors"]["bytes"] == (path / "model.safetensors").stat().st_size
