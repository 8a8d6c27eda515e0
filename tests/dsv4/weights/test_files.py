import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dsv4.config import LossConfig, ModelConfig
from dsv4.errors import UsageError
from dsv4.model import DeepseekV4
from dsv4.weights import load_hf, load_megatron, megatron_state, save_hf, save_megatron
from dsv4.weights.names import name_map

DATA = Path(__file__).parents[2] / "data/dsv4/forward"
WEIGHTS = DATA / "weights_megatron_names.safetensors"
CONFIG = ModelConfig()


def model(seed=0):
    return DeepseekV4(CONFIG, LossConfig(), "float32", seed=seed)


def state(of):
    return {name: t.numpy() for name, t in megatron_state(of).items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    assert not [name for name in a if not np.array_equal(a[name], b[name])]


def test_the_name_map_is_the_recorded_one():
    recorded = json.loads((DATA / "name_map_hf_from_megatron.json").read_text())
    ours = {m.hf: [*([] if m.how == "same" else [m.how]), *m.megatron] for m in name_map(CONFIG)}
    assert ours == recorded


def test_parameters_carry_megatrons_names_and_shapes():
    recorded = load_file(WEIGHTS)
    ours = state(model())
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in recorded.items()}


def test_megatron_weights_survive_a_round_trip(tmp_path):
    first, second = model(), model(seed=1)
    load_megatron(first, WEIGHTS)
    save_megatron(first, tmp_path / "w.safetensors")
    load_megatron(second, tmp_path / "w.safetensors")
    assert_same(state(first), state(second))
    assert_same(load_file(tmp_path / "w.safetensors"), load_file(WEIGHTS))


def test_hugging_face_weights_survive_a_round_trip_in_shards(tmp_path):
    first, second = model(), model(seed=1)
    load_megatron(first, WEIGHTS)
    save_hf(first, tmp_path / "hf", max_shard_bytes=200_000)
    assert len(list((tmp_path / "hf").glob("model-*-of-*.safetensors"))) > 5
    load_hf(second, tmp_path / "hf")
    assert_same(state(first), state(second))


def test_without_mtp_in_the_file_mtp_keeps_its_values(tmp_path):
    first, second = model(), model(seed=1)
    save_hf(first, tmp_path / "w.safetensors")
    save_file(
        {k: v for k, v in load_file(tmp_path / "w.safetensors").items() if not k.startswith("mtp.")},
        tmp_path / "hf.safetensors",
    )
    before = state(second)
    load_hf(second, tmp_path / "hf.safetensors")
    after, source = state(second), state(first)
    assert_same(
        {k: v for k, v in after.items() if k.startswith("mtp.")},
        {k: v for k, v in before.items() if k.startswith("mtp.")},
    )
    assert_same(
        {k: v for k, v in after.items() if not k.startswith("mtp.")},
        {k: v for k, v in source.items() if not k.startswith("mtp.")},
    )


@pytest.mark.parametrize("fault", ["missing", "extra", "shape", "cut", "absent"])
def test_wrong_files_are_refused_by_name(tmp_path, fault):
    arrays, path = load_file(WEIGHTS), tmp_path / "w.safetensors"
    if fault == "missing":
        arrays.pop("decoder.layers.1.mlp.router.weight")
    if fault == "extra":
        arrays["decoder.layers.9.bias"] = np.zeros(3, np.float32)
    if fault == "shape":
        arrays["output_layer.weight"] = np.zeros((3, 3), np.float32)
    if fault != "absent":
        save_file(arrays, path)
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    target = model()
    before = state(target)
    with pytest.raises(UsageError) as caught:
        load_megatron(target, path)
    assert str(path) in caught.value.message
    assert_same(state(target), before)


def test_convert_there_and_back(tmp_path):
    hf, back = tmp_path / "hf", tmp_path / "back.safetensors"
    for command in (
        ["dsv4", "convert", WEIGHTS, hf, "--to", "hf", "--config", "tiny", "--max-shard-mb", "1"],
        ["dsv4", "convert", hf, back, "--to", "megatron", "--config", DATA / "config.json"],
    ):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert_same(load_file(back), load_file(WEIGHTS))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to", "megatron", "--config", "tiny"], "--to megatron reads hf names"),
        (["--to", "hf", "--config", "huge"], "write a file's name or a preset: tiny"),
    ],
)
def test_convert_explains_wrong_use(tmp_path, words, says):
    done = subprocess.run(["dsv4", "convert", WEIGHTS, tmp_path / "x", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
