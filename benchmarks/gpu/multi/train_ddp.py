"""Data-parallel training: train_ddp.py [STEPS] [--kill-rank N] [--late-rank N]

A killed rank dies by SIGKILL at step 5, between two collectives; a late rank sleeps past the limit of the collective.
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from common import begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int, nargs="?", default=10)
parser.add_argument("--kill-rank", type=int)
parser.add_argument("--late-rank", type=int)
args = parser.parse_args()
rank, device = begin(timeout_s=15 if args.late_rank is not None else 60)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, args.steps + 1):
    if step == 5 and rank == args.kill_rank:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 5 and rank == args.late_rank:
        print(f"rank {rank}: reading a slow shard", flush=True)
        time.sleep(40)
    x = torch.randn(64, 256, device=device)
    loss = (model(x) - x.roll(1, -1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"global_step: {step} loss: {loss.item():.6f}", flush=True)
dist.destroy_process_group()
