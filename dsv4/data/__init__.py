"""Batches: token files, replayed arrays and chat records, each addressed by the number of the micro-batch."""
