"""A synchronisation inside of a graph capture."""

import torch

x = torch.randn(1024, 1024, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x @ x
    print("norm:", y.norm().item())
