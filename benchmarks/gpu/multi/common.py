"""What the multi-card jobs share: NCCL where there is a card a rank, else gloo on the CPU."""

import datetime as dt
import os

import torch
import torch.distributed as dist


def begin(timeout_s=60):
    """Join the ranks; returns (rank, device)."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cards = torch.cuda.device_count() >= world
    device = torch.device(f"cuda:{rank}" if cards else "cpu")
    if cards:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cards else "gloo", timeout=dt.timedelta(seconds=timeout_s))
    return rank, device
