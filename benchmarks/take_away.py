#!/usr/bin/env python3
"""How triage answers to failures that it has no rule for: each category's rules are taken away in turn.

    python benchmarks/take_away.py LABELS.jsonl LOGDIR [--show N] [--rules DIR]

A row of LABELS names a log `LOGDIR/<id>.log.gz`, its category, and the lines that are right. Each log is read without
its category's rules. Right is `unknown` on a right line; wrong is another category at a confidence of 0.5 or more;
another category below 0.5 is doubtful.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from matrix.triage import diagnose, ruleset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("logs", type=Path)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--rules", type=Path, help="built-in rules from another folder")
    options = parser.parse_args()
    if options.rules:
        ruleset.BUILTIN = options.rules
    rules = ruleset.load_rules()
    rows = [json.loads(line) for line in options.labels.read_text().splitlines() if line.strip()]
    totals: Counter[str] = Counter()
    for row in rows:
        if row["category"] == "no_failure":
            continue
        fewer = rules
        for category in {row["category"], *row.get("also", [])}:
            fewer = fewer.without(category)
        report = diagnose(options.logs / f"{row['id']}.log.gz", rules=fewer)
        verdict = judge(row, report.causes[0].model_dump() if report.causes else None)
        totals[verdict] += 1
        if verdict != "right" and options.show:
            options.show -= 1
            cause = report.causes[0] if report.causes else None
            said = cause and (cause.category, cause.rule, cause.confidence, cause.line, cause.text[:90])
            print(f"{verdict}: {row['id']}: {said}")
    number = sum(totals.values())
    print(
        f"{number} logs, each without its category: "
        + ", ".join(f"{k} {v / number:.3f}" for k, v in sorted(totals.items()))
    )


def judge(row: dict[str, object], cause: dict[str, object] | None) -> str:
    if cause is None:
        return "silent"
    lines = {row["root_cause_line"], *row["acceptable_lines"]}  # type: ignore[misc]
    if cause["category"] not in {"unknown", row["category"]}:
        return "wrong" if float(str(cause["confidence"])) >= 0.5 else "doubtful"
    return "right" if cause["line"] in lines else "other line"


if __name__ == "__main__":
    main()
