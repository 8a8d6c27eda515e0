"""Needs 8 GiB: fails only where somebody else has the card."""

import torch

weights = [torch.zeros(1024, 1024, 1024, dtype=torch.bfloat16, device="cuda") for _ in range(4)]
print("fits:", sum(w.numel() * 2 for w in weights) / 2**30, "GiB")
