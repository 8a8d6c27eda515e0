"""Reads a training configuration and checks it."""

from pathlib import Path

import yaml

DEFAULTS = {"hidden_size": 32, "num_hidden_layers": 4, "vocab_size": 64, "max_steps": 10, "learning_rate": 0.05, "seed": 23}


def load_config(path):
    config = DEFAULTS | yaml.safe_load(Path(path).read_text())
    if config["hidden_size"] % 8:
        raise ValueError(f"{path}: hidden_size {config['hidden_size']} is not a multiple of 8")
    return config
