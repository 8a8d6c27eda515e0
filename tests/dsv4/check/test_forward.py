"""The model against recorded runs of Megatron-LM and Hugging Face, and that departures are named."""

import json
import subprocess
from pathlib import Path

import pytest

from dsv4.check.compare import gradient_error, relative_error, sets_that_differ
from dsv4.check.forward import check_source, place
from dsv4.check.reference import Reference
from dsv4.commands.check import first_departures

DATA = Path(__file__).parents[2] / "data/dsv4/forward"


@pytest.fixture(scope="module")
def reference():
    return Reference.read(DATA)


@pytest.mark.parametrize("path", ["plain", "fast"])
@pytest.mark.parametrize("name", ["megatron_f64", "hf_f64", "megatron_f32", "hf_f32"])
def test_equals_the_recorded_run(reference, name, path):
    (source,) = [s for s in reference.sources if s.name == name]
    rows = check_source(reference, source, path)
    assert not [row for row in rows if not row.ok]
    gradients = sum(row.part == "gradients" for row in rows)
    assert gradients == {"megatron_f64": 233, "hf_f64": 106, "megatron_f32": 0, "hf_f32": 106}[name]


def test_the_first_part_that_departs_is_named(reference):
    broken = dict(reference.weights)
    name = "decoder.layers.2.mlp.shared_experts.linear_fc2.weight"
    broken[name] = broken[name] * 1.001
    changed = Reference(**{**vars(reference), "weights": broken})
    rows = check_source(changed, changed.sources[0], "fast")
    assert first_departures(rows)["megatron_f64"].tensor == "layer2.mlp_out"


def test_the_command_prints_json_and_exits_by_the_bound(tmp_path):
    done = subprocess.run(["dsv4", "check", "forward", str(DATA), "--json"], capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert (done.returncode, document["first_departure"]) == (0, {})
    assert "MKL_NUM_THREADS" in document["environment"]

    for file in DATA.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((DATA / "config.json").read_text())
    config["model"]["rope_theta"] = 10001
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run(["dsv4", "check", "forward", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "megatron_f64: the first part that departs is `layer0`: layer0.attn_out" in done.stderr


def test_a_folder_that_is_no_reference_is_refused(tmp_path):
    done = subprocess.run(["dsv4", "check", "forward", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no config.json here" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_are_relative_to_the_largest_value():
    np = pytest.importorskip("numpy")
    inf = np.inf
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative_error(np.array([1.0, inf]), np.array([1.0, inf])) == 0
    assert relative_error(np.array([1.0, 5.0]), np.array([1.0, inf])) == inf
    assert relative_error(np.array([1.0, np.nan]), np.array([1.0, 1.0])) != 0
    assert gradient_error(np.array([1e-13]), np.array([0.0]), largest=1.0) == 0
    assert gradient_error(np.array([2e-12]), np.array([0.0]), largest=1.0) == inf
    assert sets_that_differ(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [3, 5]])) == 0.5


def test_tensors_are_placed_in_the_order_of_computation():
    names = [
        "mtp.attn_out",
        "logits",
        "layer1.out_streams",
        "layer1.attn_hc.comb",
        "layer0.mlp_out",
        "layer1.router.logits",
    ]
    ordered = sorted(names, key=lambda name: place(name, 4))
    assert ordered == [
        "layer0.mlp_out",
        "layer1.attn_hc.comb",
        "layer1.router.logits",
        "layer1.out_streams",
        "logits",
        "mtp.attn_out",
    ]
