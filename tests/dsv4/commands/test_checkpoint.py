"""`dsv4 checkpoint`: inspect and verify."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import SafetensorError

from dsv4 import checkpoint
from dsv4.commands.checkpoint import command
from dsv4.errors import Dsv4Error, UsageError


@pytest.fixture
def folder(tmp_path):
    for step in (1, 2):
        checkpoint.write(tmp_path, step, {"model": {"w": np.ones((2, 3))}}, {"data_position": 2 * step})
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)


def test_verify_passes_whole_checkpoints_and_names_the_altered_file(folder):
    assert run("verify", folder).return_value == 0
    file = folder / "step-00000001" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    done = run("verify", folder)
    assert done.return_value == 1
    assert f"{file} has " in done.output
    assert f"{folder / 'step-00000002'}: whole" in done.output
    assert run("verify", folder / "step-00000002").return_value == 0


def test_inspect_shows_the_newest(folder):
    done = run("inspect", folder)
    assert "step 2, 4 micro-batches consumed" in done.output
    assert "  w F64 [2, 3]" in done.output
    document = json.loads(run("inspect", folder, "--json").output)
    assert document["tensors"]["model.safetensors"] == {"w": ["F64", [2, 3]]}


def test_reshard_does_not_disturb_a_run_that_is_saving_there(folder, tmp_path):
    target = tmp_path / "live"
    with checkpoint.Writer(target):
        writing = target / ".unfinished-step-00000009"
        writing.mkdir()
        caught = run("reshard", folder / "step-00000001", target).exception
        assert isinstance(caught, UsageError)
        assert "another run is saving here" in caught.message
        assert writing.is_dir()


def test_reshard_that_does_not_fit_says_so_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def no_space(_arrays, path):
        path.write_bytes(b"what fitted")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", no_space)
    caught = run("reshard", folder, tmp_path / "out").exception
    assert isinstance(caught, Dsv4Error)
    assert "No space left on device" in caught.message
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_folder_without_checkpoints_is_an_error(tmp_path, verb):
    assert isinstance(run(verb, tmp_path / "none").exception, UsageError)


def test_reshard_writes_the_same_tensors_to_as_many_files_as_asked(folder, tmp_path):
    arrays = {f"w{i}": np.full((i + 1, 3), float(i)) for i in range(7)}
    source = checkpoint.write(folder, 3, {"model": arrays, "optimizer": {"w1/momentum": arrays["w1"]}}, {"seed": 1})
    assert run("reshard", source, tmp_path / "three", "--files", 3).return_value == 0
    path = tmp_path / "three" / "step-00000003"
    assert sorted(p.name for p in path.glob("model-*")) == [f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)]
    assert run("verify", path).return_value == 0
    assert run("reshard", path, tmp_path / "one").return_value == 0
    again, first = (checkpoint.read(p) for p in (tmp_path / "one" / "step-00000003", source))
    assert (again.step, again.state) == (first.step, first.state)
    for group in ("model", "optimizer"):
        assert again.groups[group].keys() == first.groups[group].keys()
        assert all(np.array_equal(again.groups[group][n], a) for n, a in first.groups[group].items())
    one, written = (sorted(p.name for p in q.iterdir()) for q in (tmp_path / "one" / "step-00000003", source))
    assert one == written
    assert isinstance(run("reshard", path, tmp_path / "one").exception, UsageError)
