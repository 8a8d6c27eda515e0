"""Scores the verdicts on simulated histories: verdicts.py [--seeds N] [--at-once]

Prints accuracy, precision and coverage by kind of failure, and the share right by path of evidence (what
matrix/history/likelihood.py holds).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from matrix.history import attribute as module
from matrix.history.attribute import attribute
from tests.matrix.history.simulate import World, simulate


def score(worlds: list[World], *, at_once: bool) -> tuple[dict[str, Counter[str]], dict[tuple[str, str], list[int]]]:
    """Verdicts by kind of failure, and by path [given, right]."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    by_path: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    paths: list[tuple[str, str]] = []
    module.likelihood = lambda value, path: paths.append((value, path)) or 0.5  # type: ignore[attr-defined,func-returns-value]
    for world in worlds:
        history = simulate(world)
        for case in history.cases:
            seen = case.failure.seen
            known = history.about(seen)
            if at_once:
                known = [o for o in known if o.at <= seen.at]
            paths.clear()
            value = attribute(case.failure, known).value
            by_kind[case.kind][value] += 1
            by_kind[case.kind]["right"] += value == case.truth
            if paths:
                by_path[paths[-1]][0] += 1
                by_path[paths[-1]][1] += value == case.truth
    return by_kind, by_path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-once", action="store_true", help="know only what was there when the failure was seen")
    args = parser.parse_args()
    by_kind, by_path = score([World(seed=s) for s in range(args.seeds)], at_once=args.at_once)
    values = ["this-change", "base", "infra", "flaky", "cannot-tell"]
    print(f"{'kind':14}{'n':>6}" + "".join(f"{v:>13}" for v in values) + f"{'accuracy':>10}")
    total: Counter[str] = Counter()
    for kind, c in sorted(by_kind.items()):
        n = sum(c[v] for v in values)
        given = n - c["cannot-tell"]
        print(f"{kind:14}{n:6}" + "".join(f"{c[v]:13}" for v in values) + f"{c['right'] / given if given else 0:10.3f}")
        total.update(c)
        total["wrong this-change"] += c["this-change"] if kind in ("outage", "flaky", "base") else 0
    n = sum(total[v] for v in values)
    given = n - total["cannot-tell"]
    print(f"accuracy {total['right'] / given:.3f}, given {given / n:.3f}, "
          f"this-change precision {1 - total['wrong this-change'] / total['this-change']:.3f}")  # fmt: skip
    for (value, path), (n, right) in sorted(by_path.items()):
        print(f'    ("{value}", "{path}"): {(right + 1) / (n + 2):.3f},  # {right} of {n}')


if __name__ == "__main__":
    main()
