"""From a log to its causes: read, frames, scan, rank, signature."""

from matrix.triage.diagnosis import diagnose

__all__ = ["diagnose"]
