"""Scores the verdicts on the made repositories of worlds.py: verdicts.py [--held-out] [--at-once] [--table]

Without a database, so that many worlds take a minute; `verdicts_imported.py` goes through `matrix history import`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.worlds import HELD_OUT, TUNING, Attempt, Maker, Run, World
from matrix.history.attribute import Failure, Observation, attribute

VALUES = ["this-change", "base", "infra", "flaky", "cannot-tell"]


def observed(run: Run, job: str, attempt: Attempt) -> Observation:
    """Write an attempt as the history remembers it."""
    return Observation(
        run=run.id, job=job, at=attempt.at, passed=attempt.fault is None, commit=run.commit, base=run.base, pr=run.pr,
        signature=attempt.fault.signature if attempt.fault else None, author=run.author, changed=run.changed,
        branch=run.branch, host=run.host,
    )  # fmt: skip


def judged(world: World, *, at_once: bool, most: int) -> list[tuple[str, str, str, float | None]]:
    """Kind, truth, verdict and likelihood of the last failure of each job in each run of a pull request."""
    by_job, by_signature, by_run = defaultdict(list), defaultdict(list), defaultdict(list)
    last = []
    for run in Maker(world).make():
        for job, attempts in run.jobs.items():
            for attempt in attempts:
                o = observed(run, job, attempt)
                by_job[job].append(o)
                by_run[run.id].append(o)
                if o.signature:
                    by_signature[o.signature].append(o)
            if run.pr is not None and attempt.fault is not None:
                last.append((o, attempt.fault))
    out = []
    random.Random(0).shuffle(last)
    last = last[:most]
    for seen, fault in last:
        found = {id(o): o for o in (*by_job[seen.job], *by_signature[seen.signature], *by_run[seen.run])}
        known = [o for o in found.values() if not at_once or o.at <= seen.at + 3600]
        files = fault.files & seen.changed
        verdict = attribute(Failure(seen, fault.category, files), known)
        out.append((fault.kind, fault.truth, verdict.value, verdict.likelihood))
    return out


def figures(rows: list[tuple[str, str, str, float | None]]) -> dict[str, float]:
    """Accuracy where given, share given, precision of this-change."""
    given = [(truth, value) for _, truth, value, _ in rows if value != "cannot-tell"]
    mine = [truth for truth, value in given if value == "this-change"]
    return {
        "n": len(rows),
        "accuracy": sum(t == v for t, v in given) / max(len(given), 1),
        "mine": sum(t == "this-change" for t in mine) / max(len(mine), 1),
        "given": len(given) / max(len(rows), 1),
    }


def table(rows: list[tuple[str, str, str, float | None]]) -> str:
    """Verdicts by kind of failure."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, truth, value, _ in rows:
        kinds[kind][value] += 1
        kinds[kind]["right"] += value == truth
    lines = [f"{'kind':14}{'n':>6}" + "".join(f"{v:>13}" for v in VALUES) + f"{'accuracy':>10}"]
    for kind, c in sorted(kinds.items()):
        n = sum(c[v] for v in VALUES)
        given = max(n - c["cannot-tell"], 1)
        lines.append(f"{kind:14}{n:6}" + "".join(f"{c[v]:13}" for v in VALUES) + f"{c['right'] / given:10.3f}")
    return "\n".join(lines)


def calibration(rows: list[tuple[str, str, str, float | None]]) -> str:
    """Likelihood said, against the share that was right and (in brackets) what likelihood.py would hold by it."""
    bins: dict[tuple[str, float], list[bool]] = defaultdict(list)
    for _, truth, value, likely in rows:
        if likely is not None:
            bins[value, likely].append(truth == value)
    return "\n".join(
        f"    said {likely:.3f}: {sum(right)} of {len(right)} ({(sum(right) + 1) / (len(right) + 2):.3f})  {value}"
        for (value, likely), right in sorted(bins.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-out", action="store_true", help="the worlds that nothing was tuned on")
    parser.add_argument("--at-once", action="store_true", help="know only what was there when the failure was seen")
    parser.add_argument("--table", action="store_true", help="print the table by kind of each world")
    parser.add_argument("--only", help="worlds whose name holds this")
    parser.add_argument("--most", type=int, default=400, help="failures judged in each world")
    args = parser.parse_args()
    everything = []
    for world in HELD_OUT if args.held_out else TUNING:
        if args.only and args.only not in world.name:
            continue
        rows = judged(world, at_once=args.at_once, most=args.most)
        everything += rows
        f = figures(rows)
        bad = "" if f["accuracy"] >= 0.95 and f["mine"] >= 0.98 and f["given"] >= 0.85 else "  below"
        print(f"{world.name:28}{f['n']:6}  accuracy {f['accuracy']:.3f}, this-change precision {f['mine']:.3f}, "
              f"given {f['given']:.3f}{bad}", flush=True)  # fmt: skip
        if args.table:
            print(table(rows))
    print(table(everything))
    print(calibration(everything))


if __name__ == "__main__":
    main()
