"""`matrix rules`: list, show, check and start rules, and write their documentation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.errors import UsageError
from matrix.help import Group

if TYPE_CHECKING:
    from matrix.triage.rule_model import Rule

SKELETON = """\
category: {name}   # the file's name; stable, reports and policies refer to it
title:
  en: What a report calls it
  zh: 报告中的名称
what:
  en: What has happened, in one sentence.
  zh: 用一句话说明发生了什么。
why:
  en: Why it happens.
  zh: 为什么会发生。
role: cause            # cause | consequence | either
follows: []            # categories that usually come before it, if it can be a consequence
captures:              # words for a capture that the matching pattern lacks
  path: {{en: the file, zh: 该文件}}
patterns:
  # regex: searched in one line without colours, timestamps and rank prefix
  # where: any | exception | test | rank | error_line | launcher | summary | exit
  # confidence: 0 to 1; priority: 0 to 100, the higher wins a line; unless, after: other lines' say
  - {{id: {slug}-first, regex: 'acme-store: cannot open (?P<path>\\S+)', where: any, confidence: 0.9, priority: 60}}
fix:
  en: One sentence that says what to do about {{path}}.
  zh: 用一句话说明如何处理 {{path}}。
steps:
  en:
    - The first thing to look at.
  zh:
    - 首先查看什么。
false_positives:
  en: When the words appear without a failure.
  zh: 何时出现这些字样却没有失败。
references: ["https://example.org/acme-store/errors"]
examples:
  match:               # mark the line that must be claimed with "▶ "
    - "▶ acme-store: cannot open shard-7"
  no_match:
    - "acme-store: opened shard-7"
"""


@click.group("rules", cls=Group)
def command() -> None:
    """Show, check and write the rules that name failures.

    Built-in rules come with this program; a repository's own stand in .matrix/rules/, one file a category.
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_rules(as_json: bool) -> None:
    """List all categories.

    Example: matrix rules list
    """
    rules = _all_rules()
    if as_json:
        rows = [
            {"category": r.category, "title": r.title.model_dump(), "role": r.role, "patterns": len(r.patterns)}
            for r in rules
        ]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    width = max(len(r.category) for r in rules)
    for rule in rules:
        click.echo(f"{rule.category:{width}}  {len(rule.patterns):3}  {rule.title.en}")


@command.command("show")
@click.argument("name")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(name: str, language: str, as_json: bool) -> None:
    """Show a category's page, or the page that a pattern belongs to.

    Example: matrix rules show disk_full
    """
    from matrix.triage.rule_docs import page  # noqa: PLC0415 - keeps --help quick

    rules = _all_rules()
    found = [r for r in rules if name == r.category or any(name == p.id for p in r.patterns)]
    if not found:
        raise UsageError(f"no category or pattern is called {name}", _near(name, [r.category for r in rules]))
    if as_json:
        click.echo(json.dumps([r.model_dump(mode="json") for r in found], ensure_ascii=False))
        return
    for rule in found:
        click.echo(page(rule, language))
        for pattern in rule.patterns:
            if name in (pattern.id, rule.category):
                click.echo(f"  {pattern.id}  ({pattern.where}, confidence {pattern.confidence})  {pattern.regex}")


@command.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
def check(paths: tuple[Path, ...]) -> None:
    """Check rule files or folders (default: .matrix/rules).

    Example: matrix rules check my_rule.yaml
    """
    from matrix.triage.rule_check import check_file, slow_patterns, too_slow  # noqa: PLC0415
    from matrix.triage.rule_file import place, read_rules  # noqa: PLC0415
    from matrix.triage.ruleset import rule_files, user_rules  # noqa: PLC0415

    own_folder = user_rules(Path.cwd())
    files = [f for p in (paths or (own_folder,)) for f in (sorted(p.glob("*.yaml")) if p.is_dir() else [p])]
    if not files or not (paths or own_folder.is_dir()):
        where = ", ".join(map(str, paths)) or "this repository has no rules of its own"
        raise UsageError(f"{where}: no rule files", "start one with `matrix rules new NAME --write`, or name files")
    given = {f.resolve() for f in files}
    rules = read_rules([f for f in rule_files() if f.resolve() not in given] + files, refuse_shapes=False)
    own = dict(zip(files, rules[-len(files) :], strict=True))
    slow = [(pattern, too_slow(pattern, took)) for pattern, took in slow_patterns(list(own.values()))]
    refused = [
        f"{place(path, problem.word)}: {problem.reason}"
        for path, rule in own.items()
        for problem in [
            *check_file(rule, [r for r in rules if r is not rule]),
            *(problem for pattern, problem in slow if pattern in rule.patterns),
        ]
    ]
    for line in refused:
        click.echo(line)
    if refused:
        raise UsageError(f"{len(refused)} reasons to refuse these rules, see above")
    click.echo(f"{len(own)} rules, {sum(len(r.patterns) for r in own.values())} patterns: good")


@command.command("new")
@click.argument("name", required=False)
@click.option("--write", is_flag=True, help="Write it to .matrix/rules/NAME.yaml in place of printing it.")
@click.option("--from-feedback", "ident", metavar="ID", help="Propose it from a correction, whose id this is.")
@click.option("--db", metavar="URL", help="Where feedback is; else $MATRIX_HISTORY, else the branch matrix-feedback.")
def new(name: str | None, write: bool, ident: str | None, db: str | None) -> None:
    """Start a rule of your own.

    With --from-feedback the line that a `/wrong` named becomes its first pattern and example. Without NAME it is the
    category that was named; for one that there is, what to add to its page is printed.

    Example: matrix rules new acme_store --write
    """
    from matrix.triage.ruleset import user_rules  # noqa: PLC0415

    said = _correction(ident, db) if ident else None
    if name is None and said is None:
        raise UsageError("rules new wants a NAME", "write `matrix rules new acme_store`")
    if name is None and said is not None:
        name = said[0]
        if any(r.category == name for r in _all_rules()):
            from matrix.triage.propose import fragment  # noqa: PLC0415

            if write:
                raise UsageError(f"{name} has a page already", "name a category of your own, or leave out --write")
            click.echo(fragment(f"{name.replace('_', '-')}-{ident}", said[1]), nl=False)
            return
    assert name is not None
    if not name.replace("_", "").isalnum() or name != name.lower() or not name.isascii():
        raise UsageError(f"{name!r} is no category name", "use lower-case letters, digits and underscores: acme_store")
    text = _proposed(name, said[1]) if said else SKELETON.format(name=name, slug=name.replace("_", "-"))
    if not write:
        click.echo(text, nl=False)
        return
    target = user_rules(Path.cwd()) / f"{name}.yaml"
    if target.exists():
        raise UsageError(f"{target} is there already", "choose another name, or edit it")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    click.echo(f"{target}: written; check it with `matrix rules check`")


def _correction(ident: str, db: str | None) -> tuple[str, str]:
    """Return the category and the line of a correction."""
    from matrix.history.feedback_source import read_feedback  # noqa: PLC0415
    from matrix.triage.propose import says_something  # noqa: PLC0415

    all_of_it = read_feedback(db or os.environ.get("MATRIX_HISTORY") or None, Path.cwd())
    item = next((f for f in all_of_it if f.id == ident), None)
    corrections = [f.id for f in all_of_it if f.corrected_category]
    if item is None or not item.corrected_category:
        newest = ", ".join(corrections[-3:]) or "none"
        what = "no feedback has the id" if item is None else "no category was named in"
        raise UsageError(f"{what} {ident}", f"newest corrections: {newest}")
    if not item.text or not says_something(item.text):
        raise UsageError(
            f"{ident} names no line that says what failed: {(item.text or 'none')[:80]!r}",
            "start the rule with `matrix rules new NAME`, or correct again with line=N",
        )
    return item.corrected_category, item.text


def _proposed(name: str, line: str) -> str:
    """Return the skeleton with a line's pattern and example in place of its own."""
    from matrix.triage.propose import example, pattern  # noqa: PLC0415

    slug = name.replace("_", "-")
    kept = [
        row
        for row in SKELETON.format(name=name, slug=slug).splitlines()
        if not row.startswith(("captures:", "  path:"))
    ]
    text = "\n".join(
        pattern(f"{slug}-first", line) if row.startswith("  - {id:") else example(line) if "▶ acme" in row else row
        for row in kept
    )
    return text.replace(" about {path}", "").replace("处理 {path}", "处理") + "\n"


@command.command("docs")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default="docs")
def docs(folder: Path) -> None:
    """Write categories.md and categories.zh.md into a folder.

    Example: matrix rules docs docs
    """
    from matrix.triage.rule_docs import overview  # noqa: PLC0415
    from matrix.triage.rule_file import read_rules  # noqa: PLC0415
    from matrix.triage.ruleset import rule_files  # noqa: PLC0415

    rules = read_rules(rule_files())
    folder.mkdir(parents=True, exist_ok=True)
    for name, language in (("categories.md", "en"), ("categories.zh.md", "zh")):
        (folder / name).write_text(overview(rules, language), encoding="utf-8")
        click.echo(str(folder / name))


def _all_rules() -> list[Rule]:
    from matrix.triage.rule_file import read_rules  # noqa: PLC0415
    from matrix.triage.ruleset import rule_files, user_rules  # noqa: PLC0415

    return read_rules(rule_files([user_rules(Path.cwd())]))


def _near(name: str, known: list[str]) -> str:
    from rapidfuzz import process  # noqa: PLC0415

    best = process.extractOne(name, known)
    return f"did you mean {best[0]}? `matrix rules list` lists all" if best else "`matrix rules list` lists all"
