"""Weights on disk, under Megatron's and under Hugging Face's names."""

from dsv4.weights.files import load_hf, load_megatron, megatron_state, save_hf, save_megatron

__all__ = ["load_hf", "load_megatron", "megatron_state", "save_hf", "save_megatron"]
