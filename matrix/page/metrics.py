"""Numbers for Prometheus, computed when they are asked for."""

from __future__ import annotations

from collections import Counter

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from matrix.page.data import Data, Past
from matrix.records import load
from matrix.run.folder import RECORD, runs_folder


def text(data: Data, past: Past | None) -> bytes:
    """Return the metrics: runs by status, jobs of the newest run, and what the last 30 days came to."""
    registry = CollectorRegistry()
    runs = Gauge("matrix_runs", "The newest runs, by status", ["status"], registry=registry)
    listed = data.runs().runs
    for status, n in Counter(r.status for r in listed).items():
        runs.labels(status).set(n)
    jobs = Gauge("matrix_newest_run_jobs", "Jobs of the newest run, by status", ["status"], registry=registry)
    newest = next((r for r in listed if r.here), None)
    if newest is not None:
        record = load(runs_folder(data.root) / newest.id / RECORD)
        for status, n in Counter(str(j.status) for j in record.jobs).items():
            jobs.labels(status).set(n)
    if past is not None:
        Gauge("matrix_history_results", "Test results that are remembered", registry=registry).set(past.results)
        Gauge("matrix_flaky_tests", "Tests that passed and failed on one commit", registry=registry).set(
            len(past.flaky)
        )
        failures = Gauge("matrix_failures", "Failures of 30 days, by category", ["category"], registry=registry)
        verdicts = Gauge("matrix_verdicts", "Failed jobs of 30 days, by verdict", ["verdict"], registry=registry)
        for gauge, days in ((failures, past.categories), (verdicts, past.verdicts)):
            total: Counter[str] = Counter()
            for day in days:
                total.update(day.counts)
            for name, n in total.items():
                gauge.labels(name).set(n)
        hours = Gauge(
            "matrix_card_hours", "Card-hours of 30 days, by what came of them", ["outcome"], registry=registry
        )
        for kind in ("useful", "failed", "hangs", "retries", "waited"):
            hours.labels(kind).set(sum(getattr(h, kind) for h in past.hours))
        for row in past.accuracy[:1]:
            Gauge("matrix_diagnoses_answers", "Answers to diagnoses", registry=registry).set(row.answers)
            Gauge("matrix_diagnoses_right", "Diagnoses that readers called right", registry=registry).set(row.right)
    return generate_latest(registry)
