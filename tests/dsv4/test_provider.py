"""The mapping to PaddleFleet, as a pure function against the names that PaddleFormers 1.2.0 has."""

import json

import pytest
import yaml
from click.testing import CliRunner

from dsv4.commands.fleet import command
from dsv4.errors import Dsv4Error, UsageError
from dsv4.parallel.layout import Layout
from dsv4.provider import missing, model_fields, seg_method, train_in_fleet, training_arguments
from dsv4.run_config import load_run_config
from tests.dsv4.conftest import REFERENCE

CONFIG = REFERENCE.parents[3] / "examples" / "dsv4-align-8" / "config.yaml"
# Arguments of DeepseekV4Config.__init__, and of PretrainedConfig which it extends.
CONFIG_NAMES = {
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "max_position_embeddings", "rms_norm_eps", "initializer_range", "use_cache", "attention_bias",
    "attention_dropout", "multi_latent_attention", "q_lora_rank", "v_head_dim", "qk_nope_head_dim",
    "qk_rope_head_dim", "kv_lora_rank", "use_qk_norm", "experimental_attention_variant", "o_groups",
    "o_lora_rank", "qk_pos_emb_head_dim", "csa_window_size", "csa_compress_ratios", "csa_compress_rotary_base",
    "csa_dense_mode", "dsa_index_n_heads", "dsa_index_head_dim", "dsa_index_topk", "dsa_indexer_loss_coeff",
    "dsa_indexer_use_sparse_loss", "enable_hyper_connections", "num_residual_streams",
    "mhc_sinkhorn_iterations", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
    "n_shared_experts", "scoring_func", "moe_n_hash_layers", "actual_vocab_size", "moe_layer_freq",
    "norm_topk_prob", "routed_scaling_factor", "moe_expert_fusion", "use_mtp", "mtp_num_layers",
    "mtp_loss_scaling_factor", "use_dense_mtp", "rope_theta", "rope_type", "rotary_scaling_factor",
    "original_max_position_embeddings", "rotary_base", "tensor_model_parallel_size",
    "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "expert_model_parallel_size",
    "context_parallel_size", "sequence_parallel", "pp_seg_method", "tie_word_embeddings",
    "activation_func_clamp_value", "normalization", "model_type",
}  # fmt: skip
# Defaults of DeepseekV4Config for the fields that the original run's preset leaves as in the full model.
DEFAULTS = {
    "vocab_size": 129280, "hidden_size": 4096, "num_attention_heads": 64, "q_lora_rank": 1024, "v_head_dim": 512,
    "qk_nope_head_dim": 448, "qk_rope_head_dim": 64, "o_groups": 8, "o_lora_rank": 1024, "qk_pos_emb_head_dim": 64,
    "csa_window_size": 128, "csa_compress_rotary_base": 160000.0, "dsa_index_n_heads": 64, "dsa_index_head_dim": 128,
    "dsa_index_topk": 512, "dsa_indexer_loss_coeff": 0.01, "num_residual_streams": 4, "mhc_sinkhorn_iterations": 20,
    "n_routed_experts": 256, "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "moe_n_hash_layers": 3, "routed_scaling_factor": 1.5, "mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1,
    "rotary_scaling_factor": 16, "rotary_base": 10000, "activation_func_clamp_value": 10.0, "rms_norm_eps": 1e-6,
}  # fmt: skip


def fields(*settings):
    config = load_run_config(CONFIG, settings)
    return model_fields(config, Layout(1, config.parallel.expert_parallel, config.parallel.pipeline_parallel))


def test_the_original_run_maps_to_fields_that_exist_with_the_values_of_the_model():
    found = fields()
    assert found.keys() <= CONFIG_NAMES
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS
    assert found["csa_compress_ratios"] == [0, 0, 4, 128, 0]  # the MTP layer's ratio last
    assert found["expert_model_parallel_size"] == 8


def test_every_key_of_the_model_is_mapped_or_refused():
    before = fields()
    changes = {
        "hidden_size": 2048, "num_heads": 32, "head_dim": 256, "rope_dim": 32, "window": 64, "index_topk": 256,
        "hc_mult": 2, "moe_ffn": 1024, "rms_eps": 1e-5, "swiglu_limit": 7.0, "yarn_factor": 8, "rope_theta": 5000,
    }  # fmt: skip
    for key, value in changes.items():
        assert fields(f"model.{key}={value}") != before, key
    for key, value in {"hc_eps": 1e-5, "yarn_beta_fast": 16, "hc_norm": "hf", "shared_ffn": 3000}.items():
        with pytest.raises(UsageError, match=key):
            fields(f"model.{key}={value}")


def test_training_arguments_are_those_of_the_original_run(tmp_path):
    arguments = training_arguments(load_run_config(CONFIG), Layout(1, 8, 1), tmp_path)
    assert arguments["lr_scheduler_type"] == "cosine"
    assert (arguments["learning_rate"], arguments["min_lr"], arguments["decay_steps"]) == (1e-3, 1e-4, 100)
    assert (arguments["adam_beta1"], arguments["adam_beta2"], arguments["max_grad_norm"]) == (0.9, 0.999, 0)
    assert (arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]) == (2, 2)
    assert (arguments["optim"], arguments["bf16"], arguments["split_param"]) == ("adamw", True, True)


@pytest.mark.parametrize(
    ("setting", "word"), [("dtype=float64", "float64"), ("lr_schedule=wsd", "wsd"), ("optimizer=muon", "by head")]
)
def test_what_the_trainer_there_cannot_do_is_refused(setting, word, tmp_path):
    tail = ("wsd_decay_steps=5",) if word == "wsd" else ()
    with pytest.raises(UsageError, match=word):
        training_arguments(load_run_config(CONFIG, (setting, *tail)), Layout(1, 8, 1), tmp_path)


def test_stages_are_cut_at_their_class_names():
    assert seg_method("layer:DecoderLayer") == "layer:TransformerLayer|EmptyLayer"
    assert seg_method("layer:DecoderLayer|MTPModule") == "layer:TransformerLayer|MultiTokenPredictionLayer|EmptyLayer"
    for wrong in ("cost", "layer:Embedding"):
        with pytest.raises(UsageError, match="PaddleFleet"):
            seg_method(wrong)


def test_a_dry_run_prints_command_and_both_files():
    done = CliRunner().invoke(command, [str(CONFIG), "--dry-run", "--tokens", "tokens"], standalone_mode=False)
    text = done.output
    assert "export LOAD_FIXED_DATA_PATH=tokens" in text
    assert "\npaddleformers-cli train fleet/fleet.yaml\n" in text
    model, _, training = text.partition("# fleet/model/config.json\n")[2].partition("# fleet/fleet.yaml\n")
    assert json.loads(model) == json.loads(json.dumps(fields()))
    assert yaml.safe_load(training)["expert_model_parallel_size"] == 8


def test_without_paddlefleet_the_message_says_what_to_install(tmp_path):
    assert missing(lambda name: name != "paddlefleet")[-1] == "paddlefleet"
    with pytest.raises(Dsv4Error) as caught:
        train_in_fleet(load_run_config(CONFIG), Layout(1, 8, 1), tmp_path, None)
    assert "paddlefleet" in caught.value.message
    assert "$PADDLE_INDEX" in caught.value.advice
