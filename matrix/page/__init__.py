"""The page: runs, logs, losses and what is remembered over many runs. Reads only."""
