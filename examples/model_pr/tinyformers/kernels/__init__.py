"""Kernels of the sparse attention, compiled by Numba."""
