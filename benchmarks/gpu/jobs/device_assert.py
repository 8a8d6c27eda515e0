"""A token beyond the vocabulary reaches the embedding."""

import torch

embed = torch.nn.Embedding(1000, 64, device="cuda")
ids = torch.randint(0, 1000, (4, 128), device="cuda")
ids[2, 77] = 1000
hidden = embed(ids)
print("mean hidden:", hidden.mean().item())
