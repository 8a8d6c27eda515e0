"""Baselines: the losses, times and memory that a job had when it was right."""

from matrix.baseline.limits import compare_limit
from matrix.baseline.losses import Comparison, baseline_file, compare_losses

__all__ = ["Comparison", "baseline_file", "compare_limit", "compare_losses"]
