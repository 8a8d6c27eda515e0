"""Asks for a card that the lease does not give."""

import torch

torch.zeros(8, device="cuda:5")
