"""Keeps activations of every step: runs out of the card's memory by its own fault."""

import torch

kept = []
for step in range(10_000):
    kept.append(torch.randn(1024, 1024, 1024, device="cuda"))
    print(f"global_step: {step + 1} kept {len(kept) * 4} GiB", flush=True)
