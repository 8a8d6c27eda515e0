"""What identifies a run: code, software, environment, configuration, weights, data."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dsv4.data.tokens import file_sha256
from dsv4.numerics import env
from dsv4.run_config import RunConfig

PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "paddlefleet", "numpy", "safetensors")


def run_identity(
    config: RunConfig, *, init: Path | None, tokens: dict[str, Any], prefix: str, stamp: str | None = None
) -> dict[str, Any]:
    """Everything that can change a bit of the losses, as the document of `<record>.meta.json`.

    `prefix` is what the outputs are named by; `origin` sums the run up in one line for whoever compares with it.
    """
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    project = {"version": _version("dsv4-ci") or "not installed", "commit": _commit(Path(__file__).parent)}
    identity: dict[str, Any] = {
        "schema": "run-identity/1",
        "stamp": stamp or datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "output_prefix": prefix,
        "project": project,
        "paddlefleet": versions.get("paddlefleet", "not installed"),
        "paddle_commit": _paddle_commit(),
        "versions": versions | {"python": platform.python_version()},
        "environment": env.describe(),
        "config": config.as_dict(),
        "config_sha256": config.sha256,
        "weights": {"path": str(init), "sha256": weights_sha256(init)} if init else {"seed": config.train.seed},
        "tokens": tokens,
    }
    paddle = versions.get("paddlepaddle") or versions.get("paddlepaddle-gpu") or "unknown"
    identity["origin"] = (
        f"dsv4-ci {project['version']} commit {project['commit'] or 'unknown'}, Paddle {paddle}, {config.train.dtype}, "
        f"config {config.sha256[:12]}, run {identity['stamp']}"
    )
    return identity


def head_lines(identity: dict[str, Any]) -> list[str]:
    """Lines for the head of a log."""
    weights = identity["weights"]
    tokens = identity["tokens"]
    versions = " ".join(f"{k}={v}" for k, v in identity["versions"].items() if k != "paddlefleet")
    environment = " ".join(f"{k}={v}" for k, v in identity["environment"].items() if k not in ("cpu", "machine"))
    return [
        f"run: stamp={identity['stamp']} output_prefix={identity['output_prefix']}",
        f"run: project={identity['project']['version']} commit={identity['project']['commit']}",
        f"run: {versions} paddle_commit={identity['paddle_commit']} paddlefleet={identity['paddlefleet']}",
        f"run: cpu={identity['environment'].get('cpu')}; {environment or 'no variable set'}",
        f"run: config_sha256={identity['config_sha256']} dtype={identity['config']['train']['dtype']}",
        f"run: weights={weights.get('path', 'from seed')} sha256={weights.get('sha256', weights.get('seed'))}",
        f"run: tokens={tokens.get('path')} sha256={tokens.get('sha256')}",
        *_left_out(tokens),
    ]


def _left_out(tokens: dict[str, Any]) -> list[str]:
    """Tell what the data lost on the way, with the first reasons."""
    counts = tokens.get("left_out", {})
    if not any(counts.values()):
        return []
    summary = " ".join(f"{name}={count}" for name, count in counts.items())
    return [f"data: records={tokens['records']} left out: {summary}", *(f"data: {why}" for why in tokens["reasons"])]


def write_meta(path: Path, identity: dict[str, Any]) -> None:
    """Write the document beside a record, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(identity, indent=1, sort_keys=True) + "\n")
    partial.replace(path)


def weights_sha256(path: Path) -> str:
    """Digest of a weight file, or of all files of a sharded folder by name."""
    if path.is_file():
        return file_sha256(path)
    digest = hashlib.sha256()
    for file in sorted(p for p in path.glob("*") if p.is_file()):
        digest.update(f"{file.name}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _paddle_commit() -> str | None:
    try:
        import paddle.version  # noqa: PLC0415 - Paddle is loaded after its environment is set
    except ImportError:
        return None
    return str(paddle.version.commit)


def _commit(folder: Path) -> str | None:
    """Commit of the checkout that holds the code, with `-dirty` when files differ from it; None outside a checkout."""
    try:
        commit = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            ["git", "-C", folder, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("-dirty" if status.stdout.strip() else "")
