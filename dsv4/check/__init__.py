"""Comparison of the model with recorded runs of other implementations."""
