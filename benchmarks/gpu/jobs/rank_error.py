"""One rank of two raises on the card while the other waits in a collective. Run with torchrun --nproc_per_node 2."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.randn(64, 64, device="cuda")
for step in range(1, 6):
    if rank == 1 and step == 3:
        raise RuntimeError(f"expert 7 received 0 tokens at step {step}, capacity is 64")
    y = (x @ x).sum().cpu()
    dist.all_reduce(y)
    if rank == 0:
        print(f"global_step: {step} loss: {y.item():.4f}", flush=True)
