"""Reference pages for mkdocs, made from the code at each build: commands, configuration files, categories."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads this file alone

import docs_categories
import docs_keys

_COMMANDS = """# Commands

Every command with all its options, as `--help` shows them.

Exit codes: 0 all well; 1 the work itself found failures; 2 wrong use or a bad file, told with its line and what to
write instead; 3 the tool or its environment failed. As of any program: 130 after Ctrl-C, 141 where whoever read the
output went away. With `--json`, one JSON document is on standard output and no more.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; one that is in the repository as well is made anew."""
    for path, text in pages():
        if (old := files.get_file_from_path(path)) is not None:
            files.remove(old)
        files.append(File.generated(config, path, content=text))
    return files


def on_post_page(output: str, **_: object) -> str:
    """Give a name to what screen readers would find without one."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and text of each generated page."""
    from bot.policy import PATH, Policy  # noqa: PLC0415 -- slow to load, and wanted by a build only
    from matrix.history.quarantine import FILE, QuarantineFile  # noqa: PLC0415
    from matrix.plan.hosts import HostsSpec  # noqa: PLC0415
    from matrix.spec.json_schema import json_schema  # noqa: PLC0415
    from matrix.triage.rule_docs import overview  # noqa: PLC0415
    from matrix.triage.rule_file import read_rules  # noqa: PLC0415
    from matrix.triage.rule_model import Rule  # noqa: PLC0415
    from matrix.triage.ruleset import rule_files  # noqa: PLC0415

    yield "reference/commands.md", commands()
    about = {
        "keys": ("a matrix file", "`matrix schema` prints the schema. See [the matrix file](../matrix.md)."),
        "hosts": (
            "a hosts file",
            "`/etc/matrix/hosts.yaml`, or $MATRIX_HOSTS. See [hosts](../howto.md#add-a-card-host).",
        ),
        "policy": ("the bot's policy", f"`{PATH}` on the base branch. See [the bot](../bot.md#commands)."),
        "quarantine": ("the quarantine", f"`{FILE}`. See [flaky tests](../pytest.md#flaky-tests-and-quarantine)."),
        "rules": ("a rule", "`.matrix/rules/CATEGORY.yaml`. See [rules](../rules.md)."),
    }
    models = {"hosts": HostsSpec, "policy": Policy, "quarantine": QuarantineFile, "rules": Rule}
    for name, (title, intro) in about.items():
        schema = docs_keys.schema_of(models[name]) if name in models else json_schema()
        yield f"reference/{name}.md", docs_keys.page(f"All keys of {title}", intro, schema, "The whole file")
    rules = sorted(read_rules(rule_files()), key=lambda r: r.category)
    yield "categories.md", docs_categories.index(rules)
    yield "categories.zh.md", overview(rules, "zh")
    for rule in rules:
        yield f"categories/{rule.category}.md", docs_categories.page(rule, rules)


def commands() -> str:
    """Return the page of all commands, as their --help shows them."""
    out = [_COMMANDS]
    for name in ("matrix", "bot", "dsv4"):
        cli = importlib.import_module(f"{name}.cli").cli
        assert isinstance(cli, click.Command)
        out += _command(cli, name, 2)
    return "\n".join(out)


def _command(command: click.Command, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, max_content_width=100)
    yield f"{'#' * level} `{name}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            sub = command.get_command(context, verb)
            if sub is not None and not sub.hidden:
                yield from _command(sub, f"{name} {verb}", min(level + 1, 4))
