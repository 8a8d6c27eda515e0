"""`dsv4 bisect` names the first differing tensor of two runs."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dsv4.align.bisect import as_text, bisect, compare_events
from dsv4.align.events import Dump, Event, write_dump
from dsv4.commands.bisect import command
from dsv4.errors import UsageError
from dsv4.run import RunOptions, run_training
from dsv4.run_config import load_run_config


def events():
    generator = np.random.default_rng(0)
    return [Event("weights", f"w{i}", generator.normal(size=(3, 4))) for i in range(4)]


def changed(at, change):
    found = events()
    value = found[at].value.copy()
    change(value)
    found[at] = Event(found[at].stage, found[at].name, value)
    return found


def test_equal_events_have_no_finding():
    assert compare_events(1, events(), events(), None) is None


def test_the_first_of_two_differences_is_named_with_index_values_and_ulps():
    def nudge(value):
        value[1, 2] = np.nextafter(value[1, 2], np.inf)
        value[2, 0] += 1.0

    found = compare_events(5, changed(2, nudge), events(), None)
    assert (found.stage, found.name, found.index, found.ulps, found.differing) == ("weights", "w2", (1, 2), 1.0, 2)
    assert (found.a, found.b) == (np.nextafter(found.b, np.inf), events()[2].value[1, 2])
    assert found.equal_before == 2
    assert str(found).startswith("step 5 weights w2[1, 2]: ")


def test_rtol_is_relative_to_the_largest_value_of_the_tensor():
    def nudge(value):
        value[0, 0] += 1e-9 * abs(value).max()

    assert compare_events(1, changed(1, nudge), events(), 1e-8) is None
    assert compare_events(1, changed(1, nudge), events(), 1e-10).name == "w1"


def test_a_gradient_that_is_only_rounding_is_no_difference_under_rtol():
    def step(noise):
        return [Event("clipped gradient", "big", np.ones(2)), Event("clipped gradient", "noise", np.full(2, noise))]

    assert compare_events(1, step(1e-15), step(3e-15), 1e-9) is None
    assert compare_events(1, step(1e-15), step(3e-15), None).name == "noise"
    assert compare_events(1, step(1e-9), step(3e-9), 1e-9).name == "noise"


def test_nan_on_one_side_only_is_a_difference_and_on_both_is_none():
    def poison(value):
        value[0, 1] = np.nan

    assert compare_events(1, changed(1, poison), events(), 1e-2).index == (0, 1)
    assert compare_events(1, changed(1, poison), changed(1, poison), None) is None


def test_another_shape_or_dtype_is_a_difference():
    other = events()
    other[1] = Event("weights", "w1", np.zeros((2, 2)))
    assert "float64 [3, 4] against float64 [2, 2]" in str(compare_events(1, events(), other, None))


def test_a_tensor_of_one_side_only_is_told_and_not_a_difference(tmp_path):
    write_dump(tmp_path / "a", 1, events())
    write_dump(tmp_path / "b", 1, [*events()[:2], Event("weights", "x", np.ones(3)), events()[3]])
    result = bisect(Dump(tmp_path / "a"), Dump(tmp_path / "b"), first=1, last=1)
    assert result.finding is None
    assert result.alone == ("a: weights w2", "b: weights x")
    assert "only on one side: 2 tensors, the first is a: weights w2" in as_text(result)


def test_dumps_keep_order_dtypes_and_scalars(tmp_path):
    written = [Event("b", "z|odd", np.int64([3])), Event("a", "y", np.float32(1.5).reshape(()))]
    write_dump(tmp_path, 3, written)
    dump = Dump(tmp_path)
    read = dump.events(3)
    assert [(e.stage, e.name, e.value.dtype, e.value.tolist()) for e in read] == [
        ("b", "z|odd", np.int64, [3]),
        ("a", "y", np.float32, 1.5),
    ]
    assert (dump.first_step(), dump.events(4)) == (3, None)
    assert bisect(dump, dump, first=3, last=99).steps == 1


def test_a_folder_without_dumps_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no dumped step"):
        Dump(tmp_path)


def run(small, *options, b=None):
    config, tokens = small
    arguments = [str(config), str(b or config), "--tokens", str(tokens), "--json", *options]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    if done.exception:
        raise done.exception
    document = json.loads(done.stdout)
    assert done.return_value == (document["first_difference"] is not None)
    return document


def test_two_runs_of_one_configuration_are_equal_in_every_tensor(small):
    assert run(small, "--last", "2") | {"steps_compared": 2, "first_difference": None} == run(small, "--last", "2")


def test_a_weight_moved_by_an_ulp_at_step_three_is_named(small):
    name = "decoder.layers.1.mlp.shared_experts.linear_fc2.weight"
    found = run(small, "--plant-b", f"weight:3:{name}:9:1")["first_difference"]
    assert (found["step"], found["stage"], found["name"], found["index"]) == (3, "weights", name, [1, 1])
    assert (found["ulps"], found["differing"]) == (1.0, 1)


def test_a_wrong_rotary_base_in_one_layer_is_named_in_that_layer(small):
    found = run(small, "--plant-b", "rope:1:1.001")["first_difference"]
    assert (found["step"], found["stage"]) == (1, "micro 0 activation")
    assert found["name"].startswith("layer1.")


def test_another_epsilon_is_named_at_the_first_updated_adamw_weight(small):
    found = run(small, "--set-b", "adam_eps=1e-12")["first_difference"]
    assert (found["step"], found["stage"]) == (1, "updated weights")
    assert found["name"] == "embedding.word_embeddings.weight"


def test_another_clip_is_named_at_the_clipped_gradient(small):
    found = run(small, "--set-b", "clip_grad=0.01")["first_difference"]
    assert (found["step"], found["stage"]) == (1, "clipped gradient")


def test_a_live_run_is_compared_with_a_recorded_dump(small, tmp_path):
    config, tokens = small
    options = RunOptions(tokens=tokens, dump=tmp_path / "dump", dump_steps=2)
    run_training(load_run_config(config, ("steps=3",)), options)
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == [
        "step-00000001.safetensors",
        "step-00000002.safetensors",
    ]
    assert run(small, b=tmp_path / "dump")["steps_compared"] == 2
    found = run(small, "--set-a", "adam_beta2=0.9", b=tmp_path / "dump")["first_difference"]
    assert (found["step"], found["stage"]) == (1, "optimizer")
    assert found["name"].endswith("exp_avg_sq")


@pytest.mark.parametrize("plant", ["weight:1:none:0:1", "rope:9:1.1", "rope:x:1", "heat:1"])
def test_plants_that_cannot_be_are_refused(small, plant):
    with pytest.raises(UsageError):
        run(small, "--plant-b", plant)


@pytest.mark.align
@pytest.mark.timeout(900)
def test_a_weight_moved_by_an_ulp_at_step_seven_of_the_reference_run_is_named():
    from tests.dsv4.conftest import REFERENCE

    reference = (REFERENCE / "tiny_config.json", REFERENCE / "train_tokens.safetensors")
    name = "mtp.layers.0.mtp_model_layer.mlp.experts.local_experts.5.linear_fc1.weight"
    start = ("--init", str(REFERENCE / "weights_step0.safetensors"))
    found = run(reference, *start, "--plant-b", f"weight:7:{name}:100:-1")["first_difference"]
    assert (found["step"], found["stage"], found["name"], found["ulps"]) == (7, "weights", name, 1.0)
