"""The model and batch that both sides train: 16.8 M parameters, every kind of layer, main loss only."""

MODEL = {
    "vocab_size": 4096, "hidden_size": 256, "num_layers": 4, "compress_ratios": [0, 0, 4, 128], "num_heads": 8,
    "head_dim": 64, "rope_dim": 32, "q_lora_rank": 128, "o_groups": 4, "o_lora_rank": 64, "window": 128,
    "index_heads": 8, "index_head_dim": 64, "index_topk": 64, "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
    "yarn_factor": 16.0, "yarn_original_max": 65536, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0,
    "max_positions": 512, "num_experts": 16, "topk_experts": 4, "num_hash_layers": 2, "moe_ffn": 256,
    "shared_ffn": 256, "routed_scaling": 1.5, "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20,
}  # fmt: skip
SEQ, BATCH = 512, 2
LR, BETAS, EPS, WEIGHT_DECAY = 1e-4, (0.9, 0.95), 1e-8, 0.1


def token_ids(step: int) -> list[list[int]]:
    """[BATCH, SEQ+1] ids from a small generator that needs no package: both sides see the same."""
    state, rows = step + 1, []
    for _ in range(BATCH):
        row = []
        for _ in range(SEQ + 1):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            row.append((state >> 33) % MODEL["vocab_size"])
        rows.append(row)
    return rows
