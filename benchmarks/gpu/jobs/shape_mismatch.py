"""Projection of the wrong width."""

import torch

layer = torch.nn.Linear(768, 1024, device="cuda", dtype=torch.bfloat16)
layer(torch.randn(4, 512, device="cuda", dtype=torch.bfloat16))
