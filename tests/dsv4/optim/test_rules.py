"""Which parameter goes where, and what the hybrid does with it."""

import numpy as np
import paddle
import pytest

from dsv4.errors import UsageError
from dsv4.optim.adamw import AdamSettings
from dsv4.optim.clip import clip_, squared_norm
from dsv4.optim.coefficients import coefficients
from dsv4.optim.hybrid import HybridOptimizer
from dsv4.optim.muon import MuonSettings
from dsv4.optim.rules import ParameterInfo, Rule, assign_all, megatron_rule, paddleformers_rule, table
from dsv4.optim.schedule import Schedule

LAYER = "decoder.layers.1."
PARAMETERS = [
    ParameterInfo("embedding.word_embeddings.weight", (256, 64)),
    ParameterInfo("output_layer.weight", (256, 64)),
    ParameterInfo(LAYER + "self_attention.linear_q_up_proj.weight", (128, 32)),
    ParameterInfo(LAYER + "self_attention.core_attention.compressor.linear_wkv.weight", (64, 64)),
    ParameterInfo(LAYER + "self_attention.core_attention.compressor.ape", (4, 64)),
    ParameterInfo(LAYER + "self_attention_hyper_connection.mapping_proj.weight", (24, 256)),
    ParameterInfo(LAYER + "mlp.router.weight", (8, 64)),
    ParameterInfo(LAYER + "mlp.experts.linear_fc1.weight", (8, 64, 64)),
    ParameterInfo(LAYER + "input_layernorm.weight", (64,)),
    ParameterInfo(LAYER + "mlp_hyper_connection.alpha_pre", (1,)),
]
MUON = MuonSettings(0.95, nesterov=True, steps=coefficients("deepseekv4", 10), scale_mode="spectral", extra_scale=0.18)
ADAM = AdamSettings(0.9, 0.95, 1e-20)


def by_name(assignments):
    return {a.name.removeprefix(LAYER): a for a in assignments}


def test_megatron_rule_takes_every_matrix_but_embedding_and_head():
    got = by_name(assign_all(PARAMETERS, megatron_rule(), 0.1, adam_only=False))
    muon = {name for name, a in got.items() if a.optimizer == "muon"}
    assert muon == {a.name.removeprefix(LAYER) for a in PARAMETERS[2:8]}
    assert all(a.split == 1 for a in got.values())
    assert got["embedding.word_embeddings.weight"].weight_decay == 0.1
    assert got["input_layernorm.weight"].weight_decay == 0.0


def test_adam_only_keeps_the_decay_rule():
    got = assign_all(PARAMETERS, megatron_rule(), 0.1, adam_only=True)
    assert {a.optimizer for a in got} == {"adamw"}
    assert [a.weight_decay for a in got] == [0.1] * 8 + [0.0] * 2


def test_paddleformers_rule_splits_queries_and_compressors_and_leaves_hyper_connections():
    rule = paddleformers_rule(heads=4, index_heads=16, ratios=[0, 4], ffn_split=True)
    got = by_name(assign_all(PARAMETERS, rule, 0.1, adam_only=False))
    assert got["self_attention.linear_q_up_proj.weight"].split == 4
    assert got["self_attention.core_attention.compressor.linear_wkv.weight"].split == 2
    assert got["mlp.experts.linear_fc1.weight"].split == 2
    assert got["self_attention_hyper_connection.mapping_proj.weight"].optimizer == "adamw"
    assert got["mlp.router.weight"].optimizer == "adamw"


def test_a_split_that_does_not_divide_is_refused_with_the_name():
    with pytest.raises(UsageError, match=r"linear_q_up_proj.*128 rows cannot be split in 5"):
        assign_all(PARAMETERS, Rule((), {"*linear_q_up*": 5}), 0.1, adam_only=False)


def test_table_shows_one_line_a_parameter():
    lines = table(assign_all(PARAMETERS, megatron_rule(), 0.1, adam_only=False)).splitlines()
    assert len(lines) == 1 + len(PARAMETERS)
    assert lines[8].split() == [LAYER + "mlp.experts.linear_fc1.weight", "8x64x64", "muon", "0.1", "8"]


def build(dtype="float64"):
    generator = np.random.default_rng(0)
    parameters = {p.name: paddle.to_tensor(generator.normal(size=p.shape)).cast(dtype) for p in PARAMETERS}
    gradients = {p.name: paddle.to_tensor(generator.normal(size=p.shape)).cast(dtype) for p in PARAMETERS}
    assignments = assign_all(PARAMETERS, megatron_rule(), 0.1, adam_only=False)
    return HybridOptimizer(parameters, assignments, muon=MUON, adam=ADAM), gradients


def test_a_parameter_without_gradient_still_decays():
    optimizer, gradients = build()
    name = PARAMETERS[2].name
    before = optimizer.parameters[name].clone()
    del gradients[name]
    optimizer.step(gradients, 0.01)
    assert np.allclose(optimizer.parameters[name].numpy(), before.numpy() * (1 - 0.001), rtol=1e-14)


def test_state_round_trip_goes_on_with_the_same_bits():
    first, gradients = build()
    first.step(gradients, 0.01)
    second, _ = build()
    for name, p in first.parameters.items():
        paddle.assign(p, second.parameters[name])
    second.load_state_dict({k: t.clone() for k, t in first.state_dict().items()}, first.steps)
    first.step(gradients, 0.01)
    second.step(gradients, 0.01)
    for name, p in first.parameters.items():
        assert np.array_equal(p.numpy(), second.parameters[name].numpy())


def test_state_of_another_model_is_refused_with_the_name():
    optimizer, _ = build()
    state = optimizer.state_dict()
    state.pop(f"{PARAMETERS[0].name}/exp_avg")
    with pytest.raises(UsageError, match=r"lacks embedding\.word_embeddings\.weight/exp_avg"):
        optimizer.load_state_dict(state, 1)


def test_bfloat16_parameters_have_a_float32_master():
    optimizer, gradients = build("bfloat16")
    optimizer.step(gradients, 1e-4)
    name = PARAMETERS[0].name
    master = optimizer.state[name]["master"]
    assert master.dtype == paddle.float32
    assert optimizer.parameters[name].dtype == paddle.bfloat16
    assert np.array_equal(
        optimizer.parameters[name].cast("float32").numpy(), master.cast("bfloat16").cast("float32").numpy()
    )
    assert not np.array_equal(master.numpy(), master.cast("bfloat16").cast("float32").numpy())


def test_clip_scales_only_above_the_limit():
    gradients = [paddle.full([2, 2], 3.0, "float64"), paddle.full([1], 8.0, "float64")]
    norm = squared_norm(gradients) ** 0.5
    assert norm == 10.0
    assert clip_(gradients, norm, 0) == 1.0
    assert clip_(gradients, norm, 10.5) == 1.0
    assert clip_(gradients, norm, 1.0) == 1.0 / (10.0 + 1e-6)
    assert gradients[1].item() == 8.0 / (10.0 + 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "cosin"}, "lr_schedule: no schedule 'cosin'"),
        ({"kind": "cosine", "length": 10, "warmup": 10}, "warmup_steps 10 leaves no step"),
        ({"kind": "wsd", "length": 10, "warmup": 4, "tail": 11}, "wsd_decay_steps is 11"),
        ({"kind": "wsd", "length": 10, "tail": 3, "tail_style": "sine"}, "wsd_decay_style: no style 'sine'"),
    ],
)
def test_schedules_that_make_no_sense_say_what_to_write(arguments, message):
    with pytest.raises(UsageError, match=message) as caught:
        Schedule(peak=1.0, **arguments)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("name", "steps", "message"),
    [("quintik", 5, "no set 'quintik'"), ("simple", 0, "muon_steps is 0"), ([[1, 2]], 1, "three numbers")],
)
def test_coefficient_mistakes_are_named(name, steps, message):
    with pytest.raises(UsageError, match=message):
        coefficients(name, steps)


def test_sets_are_prolonged_as_their_authors_do():
    assert coefficients("deepseekv4", 5) == ((3.4445, -4.7750, 2.0315),) * 5
    assert coefficients("deepseekv4", 12)[-3:] == ((2.0, -1.5, 0.5),) * 3
    assert coefficients("quintic", 7)[5:] == coefficients("quintic", 2)


def test_the_reference_model_is_dealt_as_megatron_dealt_it(tmp_path):
    from dsv4.model import DeepseekV4
    from dsv4.optim.build import assign
    from dsv4.run_config import load_run_config

    (tmp_path / "tiny.yaml").write_text("")
    config = load_run_config(tmp_path / "tiny.yaml")
    model = DeepseekV4(config.model, config.train.losses(), "float64")
    groups = [(a.optimizer, a.weight_decay) for a in assign(dict(model.named_parameters()), config)]
    assert {group: groups.count(group) for group in groups} == {
        ("muon", 0.1): 153,
        ("adamw", 0.1): 2,
        ("adamw", 0.0): 78,
    }
