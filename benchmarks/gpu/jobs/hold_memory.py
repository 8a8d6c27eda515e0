"""Holds most of the card's memory until it is ended: hold_memory.py SECONDS. Plays the orphan of another job."""

import sys
import time

import torch

free, total = torch.cuda.mem_get_info()
held = torch.empty(int(free * 0.97), dtype=torch.uint8, device="cuda")
print(f"holding {held.numel() / 2**30:.0f} of {total / 2**30:.0f} GiB", flush=True)
time.sleep(float(sys.argv[1]))
