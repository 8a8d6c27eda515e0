"""Small runs that many tests use."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

REFERENCE = Path(__file__).parents[1] / "data" / "dsv4" / "train"

SMALL = {
    "model": {
        "vocab_size": 32, "hidden_size": 16, "num_layers": 2, "compress_ratios": [0, 4], "num_heads": 2,
        "head_dim": 8, "rope_dim": 4, "q_lora_rank": 8, "o_groups": 2, "o_lora_rank": 4, "window": 4,
        "index_heads": 2, "index_head_dim": 8, "index_topk": 2, "max_positions": 16, "num_experts": 4,
        "num_hash_layers": 1, "moe_ffn": 8, "shared_ffn": 8, "hc_mult": 2, "hc_sinkhorn_iters": 3,
    },
    "train": {"seq_len": 16, "micro_batch": 2, "accumulate": 2, "steps": 4},
}  # fmt: skip


def small_run(folder):
    """Write the configuration and tokens of `small` to a folder."""
    config, tokens = folder / "small.json", folder / "tokens.safetensors"
    config.write_text(json.dumps(SMALL, indent=1))
    ids = np.random.default_rng(3).integers(0, 32, (20, 2, 17)).astype(np.int32)
    mask = np.random.default_rng(4).integers(0, 2, (20, 2, 16)).astype(np.int32)
    save_file({"tokens": ids, "loss_mask": mask}, tokens)
    return config, tokens


@pytest.fixture
def small(tmp_path):
    """A configuration that trains in a moment, and tokens for ten steps: paths of both."""
    return small_run(tmp_path)
