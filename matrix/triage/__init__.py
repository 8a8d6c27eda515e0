"""From a log to its causes: read, frames, scan, rank, signature."""
