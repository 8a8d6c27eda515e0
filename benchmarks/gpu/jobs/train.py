"""Trains a small transformer on the card: train.py [STEPS]. Prints losses, saves a checkpoint."""

import sys
from pathlib import Path

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
torch.manual_seed(0)
device = torch.device("cuda")
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0), 4).to(device)
embed, head = nn.Embedding(1024, 256, device=device), nn.Linear(256, 1024, device=device)
parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=3e-4)
for step in range(1, steps + 1):
    ids = torch.randint(0, 1024, (8, 129), device=device)
    logits = head(model(embed(ids[:, :-1])))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"global_step: {step} loss: {loss.item():.6f}", flush=True)
out = Path("output")
out.mkdir(exist_ok=True)
torch.save(model.state_dict(), out / "model.pt")
print("***** train metrics *****")
print(f"  max_memory = {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
