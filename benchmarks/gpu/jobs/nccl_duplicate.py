"""Two ranks on one card: NCCL refuses. Run with torchrun --nproc_per_node 2."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
x = torch.ones(1 << 20, device="cuda:0")
dist.all_reduce(x)
torch.cuda.synchronize()
print("rank", dist.get_rank(), x[0].item())
