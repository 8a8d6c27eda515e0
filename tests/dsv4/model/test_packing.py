"""Packed documents do not see each other."""

import numpy as np
import paddle
import pytest

from dsv4.config import LossConfig, ModelConfig
from dsv4.model import DeepseekV4
from dsv4.model.packing import Packing

CONFIG = ModelConfig(
    vocab_size=32, hidden_size=16, num_layers=3, compress_ratios=(0, 4, 128), num_heads=2, head_dim=8, rope_dim=4,
    q_lora_rank=8, o_groups=2, o_lora_rank=4, window=4, index_heads=2, index_head_dim=8, index_topk=2, num_experts=4,
    num_hash_layers=1, moe_ffn=8, shared_ffn=8, hc_mult=2, hc_sinkhorn_iters=3,
)  # fmt: skip
LENGTHS = (7, 12, 1, 4)
S = sum(LENGTHS)
TOKENS = np.random.default_rng(0).integers(1, 32, (1, S + 1))
DOCUMENTS = np.repeat(np.arange(len(LENGTHS)), LENGTHS)[None]


def build(path, **losses):
    return DeepseekV4(CONFIG, LossConfig(**losses), "float64", path)


def tensors(ids):
    return paddle.to_tensor(ids[:, :-1]), paddle.to_tensor(ids[:, 1:])


def test_spans_and_shift_end_with_their_documents():
    packing = Packing.of(np.array([[0, 0, 1, 1, 1], [5, 5, 5, 5, 6]]))
    assert packing.spans == ((0, 0, 2), (0, 2, 5), (1, 0, 4), (1, 4, 5))
    shifted = packing.shift_left(paddle.to_tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]))
    assert shifted.tolist() == [[2, 0, 4, 5, 0], [7, 8, 9, 0, 0]]


@pytest.mark.parametrize("path", ["fast", "plain"])
def test_a_packed_row_gives_each_document_what_it_gives_alone(path):
    model = build(path, balance_coeff=0.0)
    mask = np.ones((1, S), np.int64)
    mask[0, np.cumsum(LENGTHS) - 1] = 0  # a document's last label belongs to the next document
    tokens, labels = tensors(TOKENS)
    packed = model(tokens, labels, paddle.to_tensor(mask), packing=Packing.of(DOCUMENTS))
    alone = {"main": 0.0, "mtp": 0.0, "indexer": 0.0}
    counting = {"main": 0, "mtp": 0}
    for first, length in zip(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS, strict=True):
        part = slice(first, first + length)
        out = model(tokens[:, part], labels[:, part], paddle.to_tensor(mask[:, part]))
        for name, loss, count in (("main", out.main_loss, length - 1), ("mtp", out.mtp_losses[0], length - 2)):
            alone[name] += float(loss) * max(count, 0)
            counting[name] += max(count, 0)
        alone["indexer"] += float(sum(out.indexer_losses)) * length / S
    assert float(packed.main_loss) == pytest.approx(alone["main"] / counting["main"], rel=1e-13)
    assert float(packed.mtp_losses[0]) == pytest.approx(alone["mtp"] / counting["mtp"], rel=1e-13)
    assert float(sum(packed.indexer_losses)) == pytest.approx(alone["indexer"], rel=1e-12)


def test_a_change_in_one_document_does_not_reach_another():
    model = build("fast")
    other = TOKENS.copy()
    other[0, 2] = other[0, 2] % 31 + 1
    streams = []
    for ids in (TOKENS, other):
        trace = {}
        tokens, labels = tensors(ids)
        model(tokens, labels, None, trace, Packing.of(DOCUMENTS))
        streams.append(trace["layer2.out_streams"].numpy())
    assert not np.array_equal(streams[0][0, :7], streams[1][0, :7])
    # To rounding: experts multiply the tokens of all documents together.
    assert np.abs(streams[0][0, 7:] - streams[1][0, 7:]).max() < 1e-15


def test_one_document_per_row_is_no_packing():
    model = build("fast")
    tokens, labels = tensors(TOKENS)
    whole = model(tokens, labels)
    packed = model(tokens, labels, packing=Packing.of(np.zeros((1, S), np.int64)))
    assert float(packed.main_loss) == float(whole.main_loss)
    assert float(packed.mtp_losses[0]) == float(whole.mtp_losses[0])
