"""Reference pages for mkdocs, made from the code at each build: every command, every key of a matrix."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in (("reference/commands.md", commands()), ("reference/keys.md", keys())):
        files.append(File.generated(config, path, content=text))
    return files


def commands() -> str:
    """Return the page of all commands, as their --help shows them."""
    out = [
        "# Commands",
        "",
        "Exit codes: 0 all well, 1 the work found failures, 2 wrong use, 3 the tool or its host failed.",
        "",
    ]
    for name in ("matrix", "bot", "dsv4"):
        try:
            cli = importlib.import_module(f"{name}.cli").cli
        except (ImportError, AttributeError):
            continue
        if isinstance(cli, click.Command):
            out += _pages(cli, name, 2)
    return "\n".join(out)


def _pages(command: click.Command, name: str, level: int) -> list[str]:
    context = click.Context(command, info_name=name, max_content_width=100)
    out = [f"{'#' * level} `{name}`", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            sub = command.get_command(context, verb)
            if sub is not None and not sub.hidden:
                out += _pages(sub, f"{name} {verb}", min(level + 1, 4))
    return out


def keys() -> str:
    """Return the page of all keys of a matrix file, from its JSON Schema."""
    schema = json.loads((Path(__file__).parent.parent / "docs/matrix.schema.json").read_text(encoding="utf-8"))
    out = ["# All keys of a matrix file", "", "From the schema that editors use; `matrix schema` prints it.", ""]
    parts = {"The matrix": schema} | schema.get("$defs", {})
    for name, part in parts.items():
        properties = part.get("properties")
        if not properties:
            continue
        out += [
            f"## {name}",
            "",
            part.get("description", "").split("\n")[0],
            "",
            "| key | default | meaning |",
            "|---|---|---|",
        ]
        for key, value in properties.items():
            default = f"`{json.dumps(value['default'])}`" if "default" in value else ""
            out.append(f"| `{key}` | {default} | {value.get('description', '')} |".replace("\n", " "))
        out.append("")
    return "\n".join(out)
