"""A page of the site for each category of failure, from the rules' own texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from matrix.triage.rule_docs import page as section
from matrix.triage.rule_model import MARKER, Rule

_MENTION = re.compile(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`|\b([a-z0-9]+(?:_[a-z0-9]+)+)\b")
_ROLES = {
    "cause": "A cause: this is what failed.",
    "consequence": "A consequence: something else failed before it.",
    "either": "A cause, or a consequence of something that failed before it.",
}


_INDEX = """# Categories of failure

What `matrix triage` can name: {n} categories, made from the rules at each build. What fits none is `unknown`, with the
best line to start reading at. [All on one page, in Chinese](categories.zh.md).

| category | what it is | 中文 |
|---|---|---|
"""


def index(rules: Iterable[Rule]) -> str:
    """Return the page that lists all categories."""
    rows = [
        f"| [`{r.category}`](categories/{r.category}.md) | {_cell(r.title.en)} | {_cell(r.title.zh)} |" for r in rules
    ]
    return _INDEX.format(n=len(rows)) + "\n".join([*rows, ""])


def page(rule: Rule, rules: Sequence[Rule]) -> str:
    """Return the page of one category: meaning, what to do, what it looks like, neighbours, what recognises it."""
    first, _, rest = section(rule, "en").partition("\n")
    meaning, _, _ = rest.partition("\nExample:\n")
    meaning, _, references = meaning.partition("\nReferences: ")
    references = references or rest.partition("\nReferences: ")[2]
    meaning = meaning.replace("\nWhat to do: ", "\n## What to do\n\n", 1)
    out = [f"# {first.removeprefix('## ')}", meaning.rstrip(), ""]
    out += [f"[中文](../categories.zh.md#{rule.category}) · `matrix rules show {rule.category}`", ""]
    out += ["## What it looks like", "", _ROLES[rule.role], ""]
    out += _texts("Lines that are recognised, each with the lines around it that matter", rule.examples.match)
    out += _texts("Lines that are left alone", rule.examples.no_match)
    out += ["## Neighbours", ""]
    near = neighbours(rule, rules)
    out += [f"* [`{r.category}`]({r.category}.md): {r.title.en}. {why}" for r, why in near] or ["None."]
    if rule.patterns:
        out += ["", "## What recognises it", "", "| pattern | where | confidence alone |", "|---|---|---|"]
        out += [f"| `{p.id}` | {p.where.value.replace('_', ' ')} | {p.confidence:g} |" for p in rule.patterns]
        out += ["", "[How rules work](../rules.md) says what these words mean."]
    return "\n".join([*out, "", "## References", "", references.strip(), ""])


def neighbours(rule: Rule, rules: Sequence[Rule]) -> list[tuple[Rule, str]]:
    """List what this one often follows, what often follows it, and what the texts of one mention of the other."""
    by_name = {r.category: r for r in rules}
    found: dict[str, str] = {}
    for name in rule.follows:
        found.setdefault(name, "Often the cause of this one.")
    for other in rules:
        if rule.category in other.follows:
            found.setdefault(other.category, "Often a consequence of this one.")
    for other in rules:
        if other is not rule and (other.category in _mentions(rule) or rule.category in _mentions(other)):
            found.setdefault(other.category, "Easily confused, or named in its text.")
    found.pop(rule.category, None)
    return [(by_name[name], why) for name, why in sorted(found.items()) if name in by_name]


def _mentions(rule: Rule) -> set[str]:
    said = " ".join([rule.what.en, rule.why.en, rule.fix.en, rule.false_positives.en, *rule.steps.en])
    return {a or b for a, b in _MENTION.findall(said)}


def _texts(title: str, texts: Sequence[str]) -> list[str]:
    out = [f"{title}:", ""] if texts else []
    for text in texts:
        lines = text.splitlines()
        marked = [n for n, line in enumerate(lines, 1) if line.startswith(MARKER)]
        mark = f' hl_lines="{marked[0]}"' if marked and len(lines) > 1 else ""
        fence = "`" * max(4, max(map(len, re.findall("`+", text)), default=0) + 1)
        out += [f"{fence}text{mark}", *(line.removeprefix(MARKER) for line in lines), fence, ""]
    return out


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
