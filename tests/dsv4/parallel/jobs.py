"""Jobs of several real processes."""

import io
import json
import sys
from pathlib import Path

import pytest

from dsv4.align.record import Record, read_record
from dsv4.parallel.launch import launch
from tests.dsv4.conftest import REFERENCE

WORKER = Path(__file__).with_name("worker.py")
FILES = {"tokens": REFERENCE / "train_tokens.safetensors", "init": REFERENCE / "weights_step0.safetensors"}


def reference_run(folder, name, steps, *settings, **options):
    """A run of the reference configuration, for `run_job`; its record is folder/name.csv."""
    defaults = FILES | {"record": folder / f"{name}.csv", "metrics": folder / f"{name}.jsonl"}
    return {
        "config": str(REFERENCE / "tiny_config.json"),
        "settings": [f"steps={steps}", *settings],
        "options": {k: v if isinstance(v, bool | int) else str(v) for k, v in (defaults | options).items()},
    }


def run_job(folder, name, ranks, runs):
    """Do the runs one after another on the same ranks; fails with the logs if the job does."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / f"{name}.json"
    plan.write_text(json.dumps(runs))
    logs = folder / f"{name}-logs"
    outcome = launch([sys.executable, "-u", "-W", "ignore", str(WORKER), str(plan)], ranks, logs, io.StringIO())
    tails = [f"{p.name}: {p.read_text()[-2000:]}" for p in sorted(logs.iterdir())]
    assert outcome.code == 0, "\n".join(tails)
    return folder


def reference(name="losses_f64.csv", steps=100):
    record = read_record(REFERENCE / name)
    return Record(record.path, record.sha256, tuple(r for r in record.rows if r.step <= steps), None)


def column(path, key):
    """One value a step from a metrics file."""
    return [line[key] for line in lines(path)]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_close(record, expected, rel=1e-12):
    """Two records of one computation, equal but for the rounding of float64."""
    for row, want in zip(record.rows, expected.rows, strict=True):
        assert row.key == want.key
        assert (row.main, row.mtp) == pytest.approx((want.main, want.mtp), rel=rel), row.key
