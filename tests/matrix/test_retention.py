import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.errors import UsageError
from matrix.records import JobRecord, RunRecord, SpecRef, Status, save
from matrix.retention import GREEN, RED, Kept, choose, disk_use, is_going, remove, survey, sweep
from matrix.run.folder import locked

DAY = 86_400.0


def kept(name, started, size=1, **jobs) -> Kept:
    return Kept(folder=Path(name), started=started, size=size, jobs={k: Status(v) for k, v in jobs.items()})


def removed(runs, **options) -> list:
    options = {"now": 100 * DAY, "max_age": 30 * DAY, "max_size": None} | options
    return [r.run.folder.name for r in choose(runs, **options)]


def make(runs, name, started="2026-01-01T00:00:00Z", **jobs):
    folder = runs / name
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "1.log").write_text("x" * 10_000)
    record = RunRecord(id=name, spec=SpecRef(path="m", sha256="0"), engine="local", host="h", started=started)
    record.jobs = [JobRecord(name=k, suite="s", status=Status(v)) for k, v in jobs.items()]
    save(record, folder / "run.json")
    return folder


def test_old_runs_go_and_young_ones_stay():
    runs = [kept("a", 1 * DAY), kept("b", 2 * DAY), kept("c", 90 * DAY), kept("d", 99 * DAY)]
    assert removed(runs) == ["a", "b"]


def test_the_last_red_and_the_last_green_of_each_job_stay_whatever_their_age():
    runs = [
        kept("old-red", 1 * DAY, sft="failed"),
        kept("last-red", 2 * DAY, sft="timeout"),
        kept("last-green", 3 * DAY, sft="passed"),
        kept("lora-red", 4 * DAY, lora="error", sft="skipped"),
        kept("blocked", 5 * DAY, lora="blocked", sft="cancelled"),
        kept("new", 99 * DAY, other="passed"),
    ]
    assert removed(runs) == ["old-red", "blocked"]


def test_above_the_size_the_oldest_go_first_until_it_fits():
    runs = [kept(n, 90 * DAY + i, size=10) for i, n in enumerate("abcde")]
    assert removed(runs, max_size=25) == ["a", "b", "c"]
    assert removed(runs, max_size=50) == []
    assert removed(runs, max_size=0) == ["a", "b", "c", "d"]


def test_age_counts_first_and_the_size_sees_what_is_left():
    runs = [kept("old", 1 * DAY, size=100), kept("a", 90 * DAY, size=10), kept("b", 91 * DAY, size=10)]
    assert removed(runs, max_size=20) == ["old"]


status = st.sampled_from(sorted(Status))
run_lists = st.lists(
    st.tuples(st.floats(0, 100 * DAY), st.integers(0, 50), st.dictionaries(st.sampled_from("xyz"), status)), max_size=12
)


@given(run_lists, st.none() | st.floats(0, 100 * DAY), st.none() | st.integers(0, 200))
def test_whatever_is_asked_each_job_keeps_its_last_red_and_green(rows, max_age, max_size):
    runs = [Kept(Path(f"r{n:02}"), started, size, jobs) for n, (started, size, jobs) in enumerate(rows)]
    gone = set(removed(runs, max_age=max_age, max_size=max_size))
    by_age = sorted(runs, key=lambda r: (r.started, r.folder))
    for kind in (RED, GREEN):
        for job in "xyz":
            having = [r.folder.name for r in by_age if r.jobs.get(job) in kind]
            assert not having or having[-1] not in gone
    if max_size is not None and runs:
        left = [r for r in runs if r.folder.name not in gone]
        assert sum(r.size for r in left) <= max_size or gone == set(removed(runs, max_age=0.0, max_size=0))


def test_folders_are_surveyed_with_their_size_and_links_are_left_out(tmp_path):
    runs = tmp_path / "runs"
    make(runs, "20260101-000000-aaaa", sft="failed")
    make(tmp_path / "elsewhere", "20260101-000000-bbbb")
    (runs / "link").symlink_to(tmp_path / "elsewhere" / "20260101-000000-bbbb")
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    (runs / "file").write_text("x")
    found = {run.folder.name: run for run in survey(runs)}
    assert set(found) == {"20260101-000000-aaaa", "broken"}
    assert found["20260101-000000-aaaa"].jobs == {"sft": Status.FAILED}
    assert found["20260101-000000-aaaa"].size >= 10_000
    assert not found["broken"].readable
    assert survey(tmp_path / "nowhere") == []


def test_links_inside_a_run_are_removed_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "weights").write_text("w" * 100_000)
    folder = make(tmp_path / "runs", "r1")
    (folder / "out").symlink_to(precious)
    (folder / "logs" / "link").symlink_to(precious / "weights")
    assert disk_use(folder) < 100_000
    assert remove(folder)
    assert os.listdir(tmp_path / "runs") == []  # noqa: PTH208
    assert (precious / "weights").exists()


def test_a_run_that_goes_on_is_never_removed(tmp_path):
    folder = make(tmp_path / "runs", "r1")
    assert not is_going(folder)
    assert not (folder / ".lock").exists()
    with locked(folder):
        assert is_going(folder)
        assert not remove(folder)
        assert (folder / "run.json").exists()
    assert not is_going(folder)
    assert remove(folder)


def test_looking_does_not_keep_a_runner_from_its_lock(tmp_path):
    folder = make(tmp_path / "runs", "r1")
    with locked(folder):
        pass
    assert not is_going(folder)
    with locked(folder), pytest.raises(UsageError), locked(folder):
        pass


def test_removals_that_were_broken_off_are_finished(tmp_path):
    make(tmp_path / "runs", ".removed-r1-abc")
    (tmp_path / "precious").mkdir()
    (tmp_path / "runs" / ".removed-link").symlink_to(tmp_path / "precious")
    assert survey(tmp_path / "runs") == []
    sweep(tmp_path / "runs")
    assert os.listdir(tmp_path / "runs") == [".removed-link"]  # noqa: PTH208
    assert (tmp_path / "precious").exists()
