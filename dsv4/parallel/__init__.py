"""Training on several ranks: layout, groups, exchanges, pipeline, sharded optimizer."""
