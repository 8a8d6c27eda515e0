"""Make the small copy of a reference folder that the tests use (tests/data/dsv4/forward).

  python scripts/thin_reference.py REFERENCE_DIR/forward tests/data/dsv4/forward

Weights, tokens and configuration are copied; of every float tensor of more than 256 elements in the activation and
gradient files only each k-th element is kept, flat; k is odd so that it meets every channel, and goes into the
file's metadata. Routing weights are kept whole: they are compared as sets.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

KEEP = 256


def thin_file(source: Path, target: Path) -> None:
    """Thin one file."""
    kept, steps = {}, {}
    for name, value in load_file(source).items():
        if value.dtype.kind != "f" or value.size <= KEEP or name.endswith("router.weights"):
            kept[name] = value
            continue
        step = -(-value.size // KEEP) | 1
        kept[name] = np.ascontiguousarray(value.ravel()[::step])
        steps[name] = str(step)
    save_file(kept, target, metadata=steps)


def main(source: Path, target: Path) -> None:
    """Write the small copy."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokens.safetensors", "weights_megatron_names.safetensors"):
        shutil.copyfile(source / name, target / name)
    shutil.copyfile(source / "name_map_hf_from_megatron.json", target / "name_map_hf_from_megatron.json")
    for file in sorted(source.glob("*_activations.safetensors")) + sorted(source.glob("*_grads.safetensors")):
        thin_file(file, target / file.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
