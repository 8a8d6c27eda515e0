"""Worker, run by the peer's own Python: seconds per step of Hugging Face's DeepSeek-V4. Prints one JSON line.

python peer_hf.py THREADS WARMUP STEPS
"""

import json
import os
import sys
import time

THREADS, WARMUP, STEPS = (int(word) for word in sys.argv[1:4])
os.environ.update({"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1"})

import torch  # noqa: E402
import transformers  # noqa: E402
from shape import BETAS, EPS, LR, MODEL, SEQ, WEIGHT_DECAY, token_ids  # noqa: E402

LAYER_TYPES = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def build() -> torch.nn.Module:
    """Make the model with random weights and Megatron's hash table (a new model's is all zero)."""
    m = MODEL
    config = transformers.DeepseekV4Config(
        vocab_size=m["vocab_size"],
        hidden_size=m["hidden_size"],
        num_hidden_layers=m["num_layers"],
        layer_types=[LAYER_TYPES[ratio] for ratio in m["compress_ratios"]],
        mlp_layer_types=["hash_moe" if i < m["num_hash_layers"] else "moe" for i in range(m["num_layers"])],
        num_attention_heads=m["num_heads"],
        num_key_value_heads=1,
        head_dim=m["head_dim"],
        partial_rotary_factor=m["rope_dim"] / m["head_dim"],
        q_lora_rank=m["q_lora_rank"],
        o_groups=m["o_groups"],
        o_lora_rank=m["o_lora_rank"],
        sliding_window=m["window"],
        index_n_heads=m["index_heads"],
        index_head_dim=m["index_head_dim"],
        index_topk=m["index_topk"],
        rope_theta=m["rope_theta"],
        compress_rope_theta=m["compress_rope_theta"],
        rope_parameters={
            "rope_type": "yarn",
            "factor": m["yarn_factor"],
            "original_max_position_embeddings": m["yarn_original_max"],
            "beta_fast": m["yarn_beta_fast"],
            "beta_slow": m["yarn_beta_slow"],
        },
        max_position_embeddings=m["max_positions"],
        n_routed_experts=m["num_experts"],
        num_experts_per_tok=m["topk_experts"],
        n_shared_experts=1,
        moe_intermediate_size=m["moe_ffn"],
        routed_scaling_factor=m["routed_scaling"],
        swiglu_limit=m["swiglu_limit"],
        hc_mult=m["hc_mult"],
        hc_sinkhorn_iters=m["hc_sinkhorn_iters"],
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = transformers.DeepseekV4ForCausalLM(config).float().train()
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            rows, k = buffer.shape
            table = torch.arange(rows).unsqueeze(-1) + torch.arange(k)
            buffer.copy_(table % m["num_experts"])
    return model


def main() -> None:
    """Time forward, backward and update."""
    torch.set_num_threads(THREADS)
    model = build()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
    seconds, processor = [], []
    for step in range(WARMUP + STEPS):
        ids = torch.tensor(token_ids(step))
        start, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=ids[:, :-1].contiguous(), use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - cpu)
    print(json.dumps({
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}", "seconds": seconds[WARMUP:],
                "cpu": processor[WARMUP:],
        "loss": float(loss), "parameters": sum(p.numel() for p in parameters), "seq": SEQ,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
