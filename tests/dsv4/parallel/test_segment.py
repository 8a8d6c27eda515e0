"""Where a pipeline is cut."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4.config import ModelConfig, preset
from dsv4.errors import UsageError
from dsv4.parallel.segment import Weights, _partition, cut


def test_layers_are_counted_by_class():
    assert cut(ModelConfig(), 2, "layer:DecoderLayer") == [range(2), range(2, 4)]
    # The MTP module weighs as a layer of the last stage.
    assert cut(preset("flash"), 4, "layer:DecoderLayer|MTPModule")[-1] == range(33, 43)


def test_cost_gives_the_stage_with_head_and_mtp_fewer_layers():
    assert len(cut(ModelConfig(vocab_size=8192), 2, "cost")[-1]) == 1


@pytest.mark.parametrize("method", ["layer:TransformerLayer|EmptyLayer", "layer:Head", "layer:"])
def test_a_method_that_matches_no_layer_names_those_there_are(method):
    with pytest.raises(UsageError) as caught:
        cut(ModelConfig(), 2, method)
    assert "DecoderLayer" in f"{caught.value.message} {caught.value.advice}"


def test_a_class_of_which_this_model_has_no_layer_matches_none():
    with pytest.raises(UsageError, match="matches no layer") as caught:
        cut(ModelConfig(mtp_layers=0, mtp_compress_ratios=()), 2, "layer:MTPModule")
    assert caught.value.advice == "its layers are of class DecoderLayer: write layer:DecoderLayer"


def test_more_stages_than_layers_are_refused():
    with pytest.raises(UsageError, match="only 4 decoder layers"):
        cut(ModelConfig(), 5, "cost")


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(0, 9), st.integers(0, 9), st.integers(1, 7))
def test_the_heaviest_stage_is_as_light_as_can_be(layers, head, tail, stages):
    stages = min(stages, len(layers))

    def heaviest(ends):
        bounds = list(zip((0, *ends), (*ends, len(layers)), strict=True))
        loads = [sum(layers[a:b]) for a, b in bounds]
        loads[0] += head
        loads[-1] += tail
        return max(loads)

    found = _partition(Weights(head, tuple(layers), tail), stages)
    assert [i for r in found for i in r] == list(range(len(layers)))
    best = min(heaviest(ends) for ends in combinations(range(1, len(layers)), stages - 1))
    assert heaviest(tuple(r.stop for r in found[:-1])) == best
