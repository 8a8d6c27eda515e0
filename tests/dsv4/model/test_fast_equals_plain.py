"""The fast path against the plain one, which is the specification in code, on random shapes in float64."""

import numpy as np
import paddle
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dsv4.check.compare import gradient_error, relative_error, sets_that_differ
from dsv4.config import LossConfig, ModelConfig
from dsv4.model import DeepseekV4

BOUND = 1e-10


@st.composite
def models(draw):
    """A configuration, loss weights and a batch shape; small, but every branch of both paths can come up."""
    layers = draw(st.integers(1, 3))
    mtp = draw(st.integers(0, 2))
    experts = draw(st.sampled_from([1, 2, 5]))
    head_dim, index_dim = draw(st.sampled_from([(4, 4), (6, 8), (8, 4)]))
    groups, heads = draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (2, 4)]))
    ratios = st.sampled_from([0, 4, 128])
    config = ModelConfig(
        vocab_size=17,
        hidden_size=draw(st.sampled_from([4, 10])),
        num_layers=layers,
        compress_ratios=tuple(draw(ratios) for _ in range(layers)),
        mtp_layers=mtp,
        mtp_compress_ratios=tuple(draw(ratios) for _ in range(mtp)),
        num_heads=heads,
        head_dim=head_dim,
        rope_dim=draw(st.sampled_from([2, 4])),
        q_lora_rank=5,
        o_groups=groups,
        o_lora_rank=3,
        window=draw(st.sampled_from([1, 3, 32, 70, 500])),
        index_heads=draw(st.sampled_from([2, 6, 9])),
        index_head_dim=index_dim,
        index_topk=draw(st.sampled_from([1, 3, 16, 100])),
        yarn_original_max=draw(st.sampled_from([64, 65536])),
        num_experts=experts,
        topk_experts=draw(st.integers(1, experts)),
        num_hash_layers=draw(st.integers(0, layers)),
        moe_ffn=3,
        shared_ffn=4,
        swiglu_limit=draw(st.sampled_from([0.05, 10.0])),
        hc_mult=draw(st.integers(1, 4)),
        hc_sinkhorn_iters=draw(st.integers(1, 20)),
        hc_norm=draw(st.sampled_from(["megatron", "hf"])),
    )
    losses = LossConfig(
        mtp_loss_weight=draw(st.sampled_from([0.0, 0.3])),
        indexer_loss_coeff=draw(st.sampled_from([0.0, 0.5])),
        indexer_sparse_loss=draw(st.booleans()),
        balance_coeff=draw(st.sampled_from([0.0, 0.5])),
    )
    return config, losses, draw(st.sampled_from([1, 2, 3, 5, 31, 64, 127, 130, 259])), draw(st.integers(0, 2**31))


def run(config, losses, length, seed, path, **options):
    rng = np.random.default_rng(seed)
    model = DeepseekV4(config, losses, "float64", path, init_std=0.3, seed=seed, **options)
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.ndim == 1 and tensor.is_floating_point():  # norms, sinks and biases away from 1 and 0
            tensor.set_value(tensor + paddle.to_tensor(rng.normal(0, 0.3, tensor.shape)))
    tokens = paddle.to_tensor(rng.integers(0, config.vocab_size, (2, length + 1)))
    mask = paddle.to_tensor(rng.integers(0, 2, (2, length)))
    trace = {}
    output = model(tokens[:, :-1], tokens[:, 1:], mask, trace)
    output.objective(accumulate=2).backward()
    gradients = {n: np.zeros(p.shape) if p.grad is None else p.grad.numpy() for n, p in model.named_parameters()}
    return output, {name: value.numpy() for name, value in trace.items()}, gradients


def has_tie(trace, topk):
    """Whether two indexer scores around the cut are equal to rounding (a ReLU of few heads is often 0)."""
    for name, scores in trace.items():
        if name.endswith("indexer.scores") and scores.shape[-1] > topk:
            ordered = -np.sort(-scores, axis=-1)[..., topk - 1 : topk + 1]
            visible = ordered[np.isfinite(ordered).all(axis=-1)]
            if (visible[..., 0] - visible[..., 1]).min(initial=1.0) < 1e-9:
                return True
    return False


def equal(config, losses, length, seed):
    """Assert that both paths agree; False for a tie, where either choice is right."""
    ours, our_trace, our_gradients = run(config, losses, length, seed, "fast")
    theirs, their_trace, their_gradients = run(config, losses, length, seed, "plain")
    if has_tie(their_trace, config.index_topk):
        return False
    assert our_trace.keys() == their_trace.keys()
    for name, value in their_trace.items():
        if value.dtype.kind == "f":
            assert relative_error(our_trace[name], value) <= BOUND, name
        else:
            assert sets_that_differ(our_trace[name], value) == 0, name
    for kind in ("indexer_losses", "balance_losses", "mtp_losses"):
        for a, b in zip(getattr(ours, kind), getattr(theirs, kind), strict=True):
            assert abs(float(a) - float(b)) <= BOUND * max(1.0, abs(float(b))), kind
    largest = max(float(np.abs(g).max()) for g in their_gradients.values())
    for name, gradient in their_gradients.items():
        assert gradient_error(our_gradients[name], gradient, largest) <= BOUND, name
    assert {k: v.tolist() for k, v in ours.expert_counts.items()} == {
        k: v.tolist() for k, v in theirs.expert_counts.items()
    }
    return True


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(models())
def test_fast_equals_plain(drawn):
    assume(equal(*drawn))


@pytest.mark.soak
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_fast_equals_plain_soak(drawn):
    assume(equal(*drawn))


@pytest.mark.parametrize("sparse", [True, False])
def test_gathered_entries_equal_masked_ones(sparse):
    """Many more entries than are chosen: the fast path gathers query by query."""
    config = ModelConfig(
        num_layers=1,
        compress_ratios=(4,),
        num_hash_layers=1,
        mtp_layers=0,
        mtp_compress_ratios=(),
        index_topk=3,
        window=16,
    )
    assert equal(config, LossConfig(indexer_loss_coeff=0.5, indexer_sparse_loss=sparse), 200, 1)


@pytest.mark.parametrize("window", [1, 64, 128])
def test_entries_become_visible_in_the_middle_of_equal_blocks(window):
    """Blocks before and after the end of an HCA window differ only in what they see of its entry."""
    config = ModelConfig(
        num_layers=1, compress_ratios=(128,), num_hash_layers=1, mtp_layers=0, mtp_compress_ratios=(), window=window
    )
    assert equal(config, LossConfig(), 400, 1)


def test_nothing_on_the_fast_path_grows_with_the_square_of_the_length(monkeypatch):
    """No tensor that a product, softmax or concatenation makes holds S·S elements."""
    length, largest = 1024, 0
    for module, name in ((paddle, "matmul"), (paddle, "concat"), (paddle.nn.functional, "softmax"), (paddle, "where")):
        real = getattr(module, name)

        def spy(*args, real=real, **kwargs):
            nonlocal largest
            value = real(*args, **kwargs)
            largest = max(largest, value.size)
            return value

        monkeypatch.setattr(module, name, spy)
    config = ModelConfig(
        hidden_size=8, num_layers=2, compress_ratios=(0, 4), window=16, num_heads=1, o_groups=1, head_dim=16,
        index_heads=1, index_topk=4, vocab_size=16, num_experts=2, topk_experts=1, moe_ffn=4, shared_ffn=4, hc_mult=2,
    )  # fmt: skip
    model = DeepseekV4(config, LossConfig(), "float32", "fast")
    tokens = paddle.to_tensor(np.random.default_rng(0).integers(0, 16, (1, length + 1)))
    model(tokens[:, :-1], tokens[:, 1:]).objective().backward()
    assert 0 < largest < length * length / 10
