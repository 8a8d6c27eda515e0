"""Sharded training with a distributed checkpoint: train_fsdp.py --save DIR [--load DIR] [--abort]

--abort leaves a thread running that nobody joins: std::terminate in teardown, after training and checkpoint.
"""

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import begin
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--save", required=True)
parser.add_argument("--load")
parser.add_argument("--abort", action="store_true")
args = parser.parse_args()
rank, device = begin()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(device)
fully_shard(model, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))
if args.load:
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=args.load)
    model.load_state_dict(state["model"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 11):
    x = torch.randn(64, 256, device=device)
    loss = (model(x) - x.roll(1, -1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"global_step: {step} loss: {loss.item():.6f}", flush=True)
dcp.save({"model": model.state_dict()}, checkpoint_id=args.save)
if rank == 0:
    print(f"Saving model checkpoint to {args.save}")
    print("***** train metrics *****", flush=True)
dist.barrier()
if args.abort and rank == 1:
    folder = Path(tempfile.mkdtemp())
    (folder / "t.cpp").write_text(
        "#include <thread>\n#include <chrono>\nstatic std::thread worker;\n"
        'extern "C" void start() { worker = std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }); }\n'  # noqa: E501
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-pthread", "-o", folder / "t.so", folder / "t.cpp"], check=True)
    ctypes.CDLL(str(folder / "t.so")).start()
dist.destroy_process_group()
