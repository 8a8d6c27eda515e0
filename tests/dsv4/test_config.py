import pytest

from dsv4.config import PRESETS, LossConfig, ModelConfig, preset
from dsv4.errors import UsageError


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_consistent(name):
    config = preset(name)
    assert len(config.compress_ratios) == config.num_layers


def test_flash_and_pro_have_the_published_layers():
    assert preset("flash").compress_ratios[:5] == (0, 0, 4, 128, 4)
    assert preset("flash").compress_ratios[-1] == 4
    assert preset("pro").compress_ratios[:5] == (128, 128, 4, 128, 4)
    assert (preset("pro").num_layers, len(preset("pro").compress_ratios)) == (61, 61)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_layer": 4}, "unknown key `num_layer`: did you mean `num_layers`?"),
        ({"zzz": 4}, "known keys: "),
        ({"num_layers": 3}, "`compress_ratios` has 4 entries but `num_layers` is 3: write one ratio per layer"),
        ({"compress_ratios": [0, 4, 16, 4]}, "`compress_ratios` holds 16: write 0 (window), 4 (CSA) or 128 (HCA)"),
        ({"mtp_layers": 2}, "`mtp_compress_ratios` has 1 entries but `mtp_layers` is 2"),
        ({"rope_dim": 15}, "write an even number"),
        ({"rope_dim": 34}, "`rope_dim` 34 exceeds `head_dim` 32"),
        ({"o_groups": 3}, "`o_groups` 3 does not divide num_heads·head_dim = 128"),
        ({"topk_experts": 9}, "`topk_experts` 9 exceeds `num_experts`: write at most 8"),
        ({"num_hash_layers": 5}, "`num_hash_layers` 5 exceeds `num_layers`"),
        ({"hc_norm": "torch"}, "`hc_norm`"),
        ({"vocab_size": 0}, "`vocab_size`"),
        ({"hidden_size": "wide"}, "got 'wide'"),
    ],
)
def test_faults_say_what_to_write(values, says):
    with pytest.raises(UsageError) as caught:
        ModelConfig.parse(values, "run.yaml")
    assert caught.value.message.startswith("run.yaml: ")
    assert says in caught.value.message


def test_a_negative_loss_weight_is_refused():
    with pytest.raises(UsageError, match="balance_coeff"):
        LossConfig.parse({"balance_coeff": -1})


def test_unknown_presets_are_listed():
    with pytest.raises(UsageError) as caught:
        preset("large")
    assert "align-4layer-1k" in str(caught.value.advice)
