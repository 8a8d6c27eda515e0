import numpy as np
import paddle
import pytest

from dsv4.config import LossConfig, ModelConfig
from dsv4.model import DeepseekV4
from dsv4.numerics.policy import DtypePolicy

SMALL = {"num_layers": 3, "compress_ratios": [0, 4, 128], "num_experts": 4, "num_hash_layers": 1}


def batch(length=140, rows=2, vocab=256):
    tokens = np.random.default_rng(5).integers(0, vocab, (rows, length + 1))
    return paddle.to_tensor(tokens[:, :-1]), paddle.to_tensor(tokens[:, 1:])


def run(dtype, path):
    model = DeepseekV4(ModelConfig.parse(SMALL), LossConfig(), dtype, path, init_std=0.05, seed=3)
    trace = {}
    output = model(*batch(), trace=trace)
    output.objective().backward()
    return model, output, trace


def representable(x):
    """Whether every value is a bfloat16 value."""
    return bool((x.astype("bfloat16").astype("float32") == x).all())


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_float64_has_no_float32_in_it(path, monkeypatch):
    made = set()
    for name in ("to_tensor", "zeros", "full", "arange", "eye", "ones"):
        real = getattr(paddle, name)

        def spy(*args, real=real, **kwargs):
            value = real(*args, **kwargs)
            made.add(str(value.dtype))
            return value

        monkeypatch.setattr(paddle, name, spy)
    model, output, trace = run("float64", path)
    floats = {str(t.dtype) for t in trace.values() if t.is_floating_point()}
    grads = {str(p.grad.dtype) for p in model.parameters() if p.grad is not None}
    assert floats == grads == {str(output.main_loss.dtype)} == {"paddle.float64"}
    assert "paddle.float32" not in made


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_bfloat16_rounds_activations_and_keeps_the_islands(path):
    model, output, trace = run("bfloat16", path)
    for name in ("layer0.attn_out", "layer1.mlp_out", "layer2.out_streams", "final_hidden", "layer1.compressed_kv"):
        assert representable(trace[name]), name
    for name in ("layer0.attn_hc.comb", "layer1.router.logits", "layer1.indexer.scores", "logits", "token_loss"):
        assert trace[name].dtype == paddle.float32, name
        assert not representable(trace[name]), name
    exact, _, _ = run("float32", path)
    assert abs(float(output.main_loss) - float(exact(*batch()).main_loss)) < 0.02
    assert all(np.isfinite(p.grad.numpy()).all() for p in model.parameters() if p.grad is not None)


def test_bfloat16_products_are_exact_casts_around_float32():
    policy = DtypePolicy("bfloat16")
    x, w = paddle.randn([5, 64]), paddle.randn([7, 64])
    rounded = [t.astype("bfloat16").astype("float32") for t in (x, w)]
    expected = paddle.matmul(rounded[0], rounded[1], transpose_y=True).astype("bfloat16").astype("float32")
    assert bool((policy.linear(policy.act(x), w) == expected).all())


def test_rounding_leaves_a_weights_gradient_in_full_precision():
    policy = DtypePolicy("bfloat16")
    w = paddle.randn([4, 4])
    w.stop_gradient = False
    policy.weight(w).sum().backward()
    assert w.grad.dtype == paddle.float32
