"""Pictures of runs: what they show, and that no name breaks them."""

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


def test_jobs_that_need_each_other_do_not_hang_the_drawing():
    run = run_of(job("a", 0, 1, needs=["b"]), job("b", 1, 2, needs=["a"]))
    assert "a: passed" in svg.graph(run)
