import numpy as np
import paddle
import pytest

from dsv4.config import LossConfig, ModelConfig, preset
from dsv4.model import DeepseekV4
from dsv4.model.init import initial_value

CONFIG = ModelConfig(num_layers=3, compress_ratios=(0, 4, 128), num_hash_layers=1, num_experts=4, window=16)


def batch(length=140, seed=0):
    tokens = paddle.to_tensor(np.random.default_rng(seed).integers(0, 256, (2, length + 1)))
    return tokens[:, :-1], tokens[:, 1:]


def gradients(model):
    return {n: None if p.grad is None else p.grad.numpy() for n, p in model.named_parameters()}


def run(**options):
    model = DeepseekV4(CONFIG, LossConfig(), "float64", init_std=0.1, **options)
    output = model(*batch())
    output.objective().backward()
    return output, gradients(model)


def test_recomputing_layers_changes_no_bit():
    kept, kept_gradients = run()
    again, again_gradients = run(recompute=True)
    assert float(kept.objective()) == float(again.objective())
    assert kept_gradients.keys() == again_gradients.keys()
    assert not [n for n, g in kept_gradients.items() if not np.array_equal(g, again_gradients[n])]
    assert {k: v.tolist() for k, v in kept.expert_counts.items()} == {
        k: v.tolist() for k, v in again.expert_counts.items()
    }


@pytest.mark.parametrize(
    "frozen", ["mlp.router", "norm", "experts", "hyper_connection", "indexer", "attn_sink", "embedding"]
)
def test_frozen_parameters_get_no_gradient_and_change_no_other(frozen):
    _, free = run()
    model = DeepseekV4(CONFIG, LossConfig(), "float64", init_std=0.1)
    for name, p in model.named_parameters():
        p.stop_gradient = frozen in name
    model(*batch()).objective().backward()
    for name, gradient in gradients(model).items():
        if frozen in name:
            assert gradient is None, name
        elif free[name] is not None:
            assert np.array_equal(gradient, free[name]), name


def test_the_objective_follows_section_9():
    model = DeepseekV4(CONFIG, LossConfig(), "float64")
    output = model(*batch())
    main, mtp = float(output.main_loss), float(output.mtp_losses[0])
    balance, indexer = (sum(map(float, losses)) for losses in (output.balance_losses, output.indexer_losses))
    assert indexer > 0
    assert float(output.objective(2)) == pytest.approx((main + 0.3 * mtp + balance) / 2 + indexer, rel=1e-14)
    mean = output.objective(2, indexer_loss_accumulate="mean")
    assert float(mean) == pytest.approx((main + 0.3 * mtp + balance + indexer) / 2, rel=1e-14)


def test_a_mask_counts_positions_over_the_micro_batch():
    model = DeepseekV4(CONFIG, LossConfig(), "float64")
    tokens, labels = batch()
    mask = paddle.zeros_like(labels)
    mask[0, 3:5] = 1
    trace = {}
    output = model(tokens, labels, mask, trace)
    assert float(output.main_loss) == pytest.approx(float(trace["token_loss"][0, 3:5].mean()), rel=1e-14)
    assert float(output.mtp_losses[0]) == pytest.approx(float(trace["mtp.token_loss"][0, 2:4].mean()), rel=1e-14)
    nothing = model(tokens, labels, paddle.zeros_like(labels))
    assert float(nothing.main_loss) == 0


def test_counts_are_of_score_routed_layers_and_add_up():
    output = DeepseekV4(CONFIG, LossConfig(), "float32")(*batch())
    names = {
        f"{layer}.mlp.router.expert_bias"
        for layer in ("decoder.layers.1", "decoder.layers.2", "mtp.layers.0.mtp_model_layer")
    }
    assert output.expert_counts.keys() == names
    assert {int(c.sum()) for c in output.expert_counts.values()} == {2 * 140 * CONFIG.topk_experts}


def test_no_position_sees_a_later_one():
    model = DeepseekV4(CONFIG, LossConfig(), "float64", init_std=0.1)
    tokens, labels = batch()
    first, second = {}, {}
    model(tokens, labels, None, first)
    changed = tokens.clone()
    changed[:, 100:] = (changed[:, 100:] + 1) % 256
    model(changed, labels, None, second)
    assert np.abs(first["logits"].numpy()[:, :100] - second["logits"].numpy()[:, :100]).max() < 1e-12
    assert np.abs(first["logits"].numpy()[:, 100] - second["logits"].numpy()[:, 100]).max() > 1e-6


def test_initial_values_are_megatrons():
    model = DeepseekV4(CONFIG, LossConfig(), "float32")
    values = {name: p.numpy() for name, p in model.named_parameters()}
    layer = "decoder.layers.1"
    for name in (
        "self_attention.linear_q_up_proj",
        "mlp.router",
        "self_attention.core_attention.compressor.linear_wkv",
    ):
        assert values[f"{layer}.{name}.weight"].std() == pytest.approx(0.02, rel=0.1)
    for name in ("self_attention.linear_proj", "mlp.shared_experts.linear_fc2"):
        assert values[f"{layer}.{name}.weight"].std() == pytest.approx(0.02 / np.sqrt(6), rel=0.1)
    assert values[f"{layer}.self_attention.core_attention.compressor.ape"].std() == pytest.approx(0.02, rel=0.2)
    assert values[f"{layer}.self_attention.linear_o_group_proj"].std() == pytest.approx(0.02, rel=0.1)
    phi = values[f"{layer}.mlp_hyper_connection.mapping_proj.weight"]
    assert np.abs(phi).max() == pytest.approx(np.sqrt(6 / sum(phi.shape)), rel=0.01)
    constants = {
        "alpha_res": 0.01, "hc_head_scale": 1.0, "attn_sink": 0.0, "hc_head_base": 0.0, "layernorm.weight": 1.0,
        "compressor.norm.weight": 1.0, "enorm.weight": 1.0, "hyper_connection.bias": 0.0,
    }  # fmt: skip
    for ending, constant in constants.items():
        found = [v for name, v in values.items() if name.endswith(ending)]
        assert found
        assert all((v == np.float32(constant)).all() for v in found), ending
    assert not [name for name, v in values.items() if v.ndim == 2 and not v.any()]


def test_a_parameters_start_depends_on_its_name_and_seed_alone():
    a = initial_value("output_layer.weight", [3, 4], CONFIG, 0.02, seed=1)
    assert np.array_equal(a, initial_value("output_layer.weight", [3, 4], CONFIG, 0.02, seed=1))
    assert not np.array_equal(a, initial_value("output_layer.weight", [3, 4], CONFIG, 0.02, seed=2))
    assert not np.array_equal(a, initial_value("embedding.word_embeddings.weight", [3, 4], CONFIG, 0.02, seed=1))


def test_hash_tables_are_megatrons():
    model = DeepseekV4(CONFIG, LossConfig(), "float32")
    table = model.buffers_by_name()["decoder.layers.0.mlp.router.tid2eid"].numpy()
    assert table[:3].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert table[7].tolist() == [3, 0]


def test_yarn_blends_between_its_bounds():
    from dsv4.model.rope import inverse_frequencies

    config = preset("flash")
    plain = config.compress_rope_theta ** -(np.arange(0, 64, 2) / 64)
    ratio = inverse_frequencies(config, 4) / plain
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(1 / 16)
    assert (np.diff(ratio) <= 0).all()
    assert np.allclose(inverse_frequencies(config, 0), 10000.0 ** -(np.arange(0, 64, 2) / 64), rtol=1e-15)
