"""`dsv4 checkpoint`: inspect and verify."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dsv4 import checkpoint
from dsv4.commands.checkpoint import command
from dsv4.errors import UsageError


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


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_folder_without_checkpoints_is_an_error(tmp_path, verb):
    assert isinstance(run(verb, tmp_path / "none").exception, UsageError)
