"""The documentation pages of the rules, made from the rules: Markdown text in, files out elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from matrix.triage.rule_model import MARKER, Rule, Text, fields

WORDS = {
    "en": {
        "title": "Categories of failure",
        "intro": "What `matrix triage` can name. Made by `matrix rules docs` from the rule files; do not edit by hand.",
        "why": "Why it happens",
        "role": "Role",
        "cause": "a cause",
        "consequence": "a consequence of another failure",
        "either": "a cause or a consequence",
        "follows": "often of",
        "fix": "What to do",
        "not": "Not to be confused with",
        "structure": "Told by structure",
        "example": "Example",
        "more": "References",
    },
    "zh": {
        "title": "失败类别",
        "intro": "`matrix triage` 能识别的类别。由 `matrix rules docs` 根据规则文件生成，请勿手工修改。",
        "why": "原因",
        "role": "角色",
        "cause": "原因",
        "consequence": "其他失败的后果",
        "either": "原因或后果",
        "follows": "常见前因",
        "fix": "处理办法",
        "not": "易混情形",
        "structure": "按结构判断",
        "example": "示例",
        "more": "参考",
    },
}


def overview(rules: Iterable[Rule], language: str) -> str:
    """Return the whole page in one language: a table of all categories, then a section for each."""
    words = WORDS[language]
    ordered = sorted(rules, key=lambda r: r.category)
    table = [f"| [`{r.category}`](#{r.category}) | {_cell(_say(r.title, language))} |" for r in ordered]
    head = [f"# {words['title']}", "", words["intro"], "", "| | |", "|---|---|", *table, ""]
    return "\n".join([*head, *(page(rule, language) for rule in ordered)])


def page(rule: Rule, language: str) -> str:
    """Return the section of one category."""
    words = WORDS[language]
    role = words[rule.role]
    if rule.follows:
        role += f" ({words['follows']} {', '.join(f'`{c}`' for c in rule.follows)})"
    lines = [
        f"## {rule.category}",
        "",
        f"**{_say(rule.title, language)}.** {_say(rule.what, language)}",
        "",
        f"* {words['why']}: {_say(rule.why, language)}",
        f"* {words['role']}: {role}",
        f"* {words['not']}: {_say(rule.false_positives, language)}",
    ]
    if rule.structure is not None:
        lines.append(f"* {words['structure']}: {_say(rule.structure, language)}")
    steps = rule.steps.en if language == "en" else rule.steps.zh
    lines += ["", f"{words['fix']}: {_named(rule, rule.fix, language)}", ""]
    lines += [f"{n}. {_named(rule, step, language)}" for n, step in enumerate(steps, 1)]
    if rule.examples.match:
        shown = rule.examples.match[0].replace(MARKER, "")
        lines += ["", f"{words['example']}:", "", "```text", *shown.splitlines(), "```"]
    lines += ["", f"{words['more']}: " + ", ".join(f"<{url}>" for url in rule.references), ""]
    return "\n".join(lines)


def _say(text: Text, language: str) -> str:
    return text.en if language == "en" else text.zh


def _named(rule: Rule, text: Text | str, language: str) -> str:
    """A sentence with the words that stand for its captures."""
    sentence = text if isinstance(text, str) else _say(text, language)
    for name in fields(sentence) if "{" in sentence else ():
        words = rule.captures.get(name)
        sentence = sentence.replace("{" + name + "}", f"*{_say(words, language) if words else name}*")
    return sentence


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
