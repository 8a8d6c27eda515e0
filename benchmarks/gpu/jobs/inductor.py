"""torch.compile in full-graph mode meets a break."""

import torch


@torch.compile(fullgraph=True)
def step(x):
    if x.sum() > 0:
        print("positive")
    return x * 2


step(torch.randn(64, device="cuda"))
