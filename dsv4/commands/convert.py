"""`dsv4 convert`: weights between Megatron's and Hugging Face's names."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from dsv4.config import PRESETS, ModelConfig, preset
from dsv4.errors import UsageError
from dsv4.weights.files import read_arrays, write_arrays
from dsv4.weights.names import missing_names, to_hf, to_megatron

LAYOUTS = ("hf", "megatron")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", "layout", type=click.Choice(LAYOUTS), required=True, help="Names to write.")
@click.option("--config", "config_file", required=True, help="Configuration file (section model), or a preset's name.")
@click.option("--max-shard-mb", type=click.IntRange(min=1), help="Write a folder of shards of at most this size.")
def command(source: Path, target: Path, layout: str, config_file: str, max_shard_mb: int | None) -> None:
    """Rename and rearrange the weights in SOURCE (a safetensors file or a folder of shards) to TARGET.

    Example: dsv4 convert weights.safetensors hf.safetensors --to hf --config tiny
    """
    config = preset(config_file) if config_file in PRESETS else read_model_config(Path(config_file))
    arrays = read_arrays(source)
    missing = missing_names(arrays, config, source_is_hf=layout == "megatron")
    if missing:
        other = "hf" if layout == "megatron" else "megatron"
        raise UsageError(
            f"{source}: no tensor `{missing[0]}`" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            f"--to {layout} reads {other} names: is the file already converted, or the config another model's?",
        )
    converted = to_hf(arrays, config) if layout == "hf" else to_megatron(arrays, config)
    write_arrays(converted, target, max_shard_mb and max_shard_mb * 2**20)
    click.echo(f"{target}: {len(arrays)} tensors read, written under {layout} names")


def read_model_config(path: Path) -> ModelConfig:
    """Read the section `model` of a YAML or JSON file."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", f"write a file's name or a preset: {', '.join(PRESETS)}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: not YAML or JSON: {str(e).splitlines()[0]}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise UsageError(f"{path}: no section `model`", "write the model's keys under `model:`")
    return ModelConfig.parse(content["model"], str(path))
