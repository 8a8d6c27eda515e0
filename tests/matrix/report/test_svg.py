"""Pictures of runs: what they show, and that no name breaks them."""

import math
import re
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.records import Attempt, CardRecord, JobRecord, RunRecord, SpecRef, Status
from matrix.report import svg


def run_of(*jobs):
    return RunRecord(
        id="r", spec=SpecRef(path="m", sha256="x"), engine="local", host="h", started="2026-12-01T09:00:00Z",
        ended="2026-12-01T09:10:00Z", status=Status.FAILED, jobs=list(jobs),
    )  # fmt: skip


def job(name, begin, end, *, cards=(), status=Status.PASSED, needs=()):
    held = [CardRecord(uuid=f"GPU-{i}", index=i, model="H20") for i in cards]
    tried = Attempt(
        n=1,
        started=f"2026-12-01T09:0{begin}:00Z",
        ended=f"2026-12-01T09:0{end}:00Z",
        status=status,
        log="l",
        cards=held,
    )
    return JobRecord(name=name, suite="s", status=status, attempts=[tried], needs=list(needs))


def test_each_card_has_a_row_and_blocked_jobs_stand_below():
    blocked = JobRecord(name="c", suite="s", status=Status.BLOCKED, blocked_by=["b"], needs=["b"])
    run = run_of(job("a", 0, 2, cards=(0, 1)), job("b", 3, 4, cards=(0,), status=Status.FAILED), blocked)
    found = [(b.row, b.job, b.begin, b.end, b.kind) for b in svg.bars(run)]
    assert found == [
        ("H20 #0 (GPU-0)", "a", 0, 120, "passed"),
        ("H20 #0 (GPU-0)", "b", 180, 240, "bad"),
        ("H20 #1 (GPU-1)", "a", 0, 120, "passed"),
        ("blocked: c", "blocked by b", 0.0, 600, "wait"),
    ]


def test_waiting_counts_from_when_the_hand_offs_were_there():
    run = run_of(job("a", 0, 2), job("b", 5, 6, needs=["a"]))
    assert svg.waits(run) == [("b", 180.0), ("a", 0.0)]


def test_a_run_without_attempts_or_hand_offs_has_no_picture():
    run = run_of(JobRecord(name="a", suite="s", status=Status.SKIPPED))
    assert (svg.timeline(run), svg.graph(run), svg.lines([("a", [])], "t")) == ("", "", "")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=4, unique=True))
def test_whatever_jobs_are_called_the_pictures_are_well_formed(names):
    jobs = [job(n, i, i + 1, cards=(i,), needs=names[:i]) for i, n in enumerate(names)]
    for text in (svg.timeline(run_of(*jobs)), svg.graph(run_of(*jobs))):
        ET.fromstring(str(text))
        assert "<script" not in text


def test_pictures_are_drawn_for_windows_and_for_phones():
    run = run_of(job("a", 0, 1), job("b", 1, 2))
    losses = [("run", [(1, 10.0), (2, 0.1)]), ("baseline", [(1, 10.0)])]
    for text in (svg.timeline(run), svg.lines(losses, "Loss", marks=[2])):
        ET.fromstring(str(text))
        widths = re.findall(r'width="100%" viewBox="0 0 (\d+) ', text)
        assert widths == ["1000", "340"]
        assert [text.count(c) for c in ("for-wide", "for-narrow")] == [1, 1]
    assert svg.timeline(run).count("✕") == 0


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20))
def test_ticks_are_few_round_and_around_all_values(values):
    found = svg.ticks(values)
    assert 2 <= len(found) <= 8
    span = max(values) - min(values)
    if all(math.isfinite(v) and abs(v) < 1e12 for v in values) and span > 1e-3:
        assert found[0] <= min(values) + 1e-6 * span
        assert found[-1] >= max(values) - 1e-6 * span


def test_jobs_that_need_each_other_do_not_hang_the_drawing():
    run = run_of(job("a", 0, 1, needs=["b"]), job("b", 1, 2, needs=["a"]))
    assert "a: passed" in svg.graph(run)
