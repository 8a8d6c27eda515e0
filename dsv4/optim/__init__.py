"""Optimizers: Muon and AdamW side by side, the rule that deals parameters to them, clipping and schedules."""
