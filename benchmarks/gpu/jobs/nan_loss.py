"""A learning rate that is far too high: the loss is not finite, and the guard stops the training."""

import torch

torch.manual_seed(0)
w = torch.randn(256, 256, device="cuda", dtype=torch.float16, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=1e4)
for step in range(1, 50):
    loss = ((torch.randn(64, 256, device="cuda", dtype=torch.float16) @ w) ** 2).sum()
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at global_step {step}, stop training")
    print(f"global_step: {step} loss: {loss.item():.4f}", flush=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
