"""Runs one shard of a pytest suite: `python matrix_pytest_shard.py 2/3 [pytest's arguments]`.

Called by its path with the Python of the job, so it needs pytest and nothing of this package. Each shard collects the
whole suite and keeps its own part: the parts are disjoint and together they are the suite, as long as all shards
collect the same tests and read the same times. Files stay whole where the balance allows it, for their fixtures' sake.

$MATRIX_SHARD_TIMES: a folder with times.json (node id -> seconds; without it all tests count alike). The shard leaves
shard-2of3.json there: what was collected, and what its own tests took.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TIMES = "MATRIX_SHARD_TIMES"
# A shard may be so much longer than its share before files are cut.
_SLACK = 1.1
_MAX_CUTS = 500
_measured: dict[str, float] = {}
_collected: dict[str, Any] = {}


def assign(tests: Iterable[str], times: Mapping[str, float], shards: int) -> list[list[str]]:
    """Deal node ids to shards: longest file first to the emptiest shard, cutting files where that is uneven.

    Depends on the set of tests and their times only; tests without a time count as the median of the others.
    """
    ids = sorted(set(tests))
    known = [times[test] for test in ids if times.get(test, 0) > 0]
    usual = statistics.median(known) if known else 1.0
    weight = {test: times[test] if times.get(test, 0) > 0 else usual for test in ids}
    files: dict[str, list[str]] = {}
    for test in ids:
        files.setdefault(test.split("::", 1)[0], []).append(test)
    units = list(files.values())
    target = sum(weight.values()) / shards
    for _ in range(_MAX_CUTS):
        dealt = _deal(units, weight, shards)
        loads = [sum(weight[test] for unit in part for test in unit) for part in dealt]
        some_empty = min(loads) == 0 and len(ids) >= shards
        if max(loads) <= _SLACK * target and not some_empty:
            break
        cuttable = [unit for unit in (units if some_empty else dealt[loads.index(max(loads))]) if len(unit) > 1]
        if not cuttable:
            break
        largest = max(cuttable, key=lambda unit: (sum(weight[test] for test in unit), unit[0]))
        units.remove(largest)
        units += _halves(largest, weight)
    return [sorted(test for unit in part for test in unit) for part in dealt]


def _deal(units: Sequence[list[str]], weight: Mapping[str, float], shards: int) -> list[list[list[str]]]:
    parts: list[list[list[str]]] = [[] for _ in range(shards)]
    loads = [0.0] * shards
    sized = sorted(((sum(weight[test] for test in unit), unit) for unit in units), key=lambda u: (-u[0], u[1][0]))
    for size, unit in sized:
        emptiest = loads.index(min(loads))
        parts[emptiest].append(unit)
        loads[emptiest] += size
    return parts


def _halves(unit: list[str], weight: Mapping[str, float]) -> list[list[str]]:
    half, sum_so_far = sum(weight[test] for test in unit) / 2, 0.0
    for i, test in enumerate(unit):
        sum_so_far += weight[test]
        if sum_so_far >= half and i + 1 < len(unit):
            return [unit[: i + 1], unit[i + 1 :]]
    return [unit[:-1], unit[-1:]]


def read_times(folder: str | None) -> dict[str, float]:
    """Read known times; unreadable ones are as none, since they only matter for the balance."""
    if not folder:
        return {}
    try:
        found = json.loads((Path(folder) / "times.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): float(v) for k, v in found.items() if isinstance(v, int | float)} if isinstance(found, dict) else {}


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise pytest.UsageError(f"bad shard {text!r}: write INDEX/COUNT, such as 2/3")
    return int(index), int(count)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --matrix-shard."""
    parser.addoption("--matrix-shard", metavar="INDEX/COUNT", help="keep this part of the tests only")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of xdist collected."""
    _collected.update(getattr(node, "workeroutput", {}).get("matrix_shard", {}))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this shard, in the order that they came in."""
    shard = config.getoption("--matrix-shard")
    if not shard:
        return
    index, count = _shard(shard)
    ids = {item.nodeid for item in items}
    if ids and len(ids) < count:
        raise pytest.UsageError(f"{count} shards for {len(ids)} tests: write 'shards: {len(ids)}' or fewer")
    mine = set(assign(ids, read_times(os.environ.get(TIMES)), count)[index - 1])
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]
    _collected.update(shard=index, shards=count, collected=len(ids), digest=digest)
    others = [item for item in items if item.nodeid not in mine]
    items[:] = [item for item in items if item.nodeid in mine]
    config.hook.pytest_deselected(items=others)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up set-up, call and tear-down of each test."""
    _measured[report.nodeid] = _measured.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave what was collected and measured; the main process of xdist does it for its workers."""
    folder, shard = os.environ.get(TIMES), session.config.getoption("--matrix-shard")
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["matrix_shard"] = _collected
        return
    if not folder or not shard:
        return
    index, count = _shard(shard)
    out = Path(folder) / f"shard-{index}of{count}.json"
    seconds = {test: round(value, 4) for test, value in _measured.items()}
    tmp = out.with_suffix(f".{os.getpid()}.tmp")
    try:
        tmp.write_text(json.dumps({**_collected, "seconds": seconds}), encoding="utf-8")
        tmp.replace(out)
    except OSError as e:  # the times are for the balance of later runs only; in a container the folder may be absent
        print(f"\nmatrix: the times of this shard are not kept: {out}: {e.strerror}", file=sys.stderr)


def main() -> int:
    """Run pytest as `python -m pytest` would, with this file as a plugin that xdist's workers load too."""
    folder = sys.path[0]
    sys.path[0] = ""
    sys.path.append(folder)
    shard, arguments = sys.argv[1], sys.argv[2:]
    return int(pytest.main(["-p", Path(__file__).stem, f"--matrix-shard={shard}", *arguments]))


if __name__ == "__main__":
    sys.exit(main())
