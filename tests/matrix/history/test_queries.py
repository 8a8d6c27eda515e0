import pytest

from matrix.history import queries
from matrix.history.flakiness import seen_at
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.junit_file import TestResult as Result
from tests.matrix.history.made import START, attempt, run

LONG_AGO = 0.0


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


def ask(store, question, **kw):
    with store.begin() as c:
        return question(c, **kw)


def test_observations_hold_the_job_and_the_signature_in_other_jobs(store):
    store.write(rows_of(run("a", 0, [attempt(0)])))
    store.write(rows_of(run("b", 1, [attempt(1, failed="s1")], pr=3, changed=["x.py"])))
    store.write(rows_of(run("c", 2, [attempt(2, failed="s1")], job="other")))
    store.write(rows_of(run("d", 3, [attempt(3, failed="s2")], job="other")))
    seen = ask(store, queries.observations, repository="o/r", job="unit", signature="s1", at=START.timestamp())
    assert sorted((o.run, o.job, o.passed, o.signature) for o in seen) == [
        ("a", "unit", True, None),
        ("b", "unit", False, "s1"),
        ("c", "other", False, "s1"),
    ]
    assert next(o for o in seen if o.run == "b").changed == frozenset({"x.py"})


def test_observations_of_another_repository_do_not_count(store):
    store.write(rows_of(run("a", 0, [attempt(0)])))
    assert not ask(store, queries.observations, repository="x/y", job="unit", signature=None, at=START.timestamp())


def test_a_test_that_passed_and_failed_on_one_commit_is_flaky_with_an_interval(store):
    record = run("a", 0, [attempt(0, 1, failed="s"), attempt(0.1, 2)])
    tests = {("unit", 1): [Result("t::x", "failed"), Result("t::y", "passed")], ("unit", 2): [Result("t::x", "passed")]}
    store.write(rows_of(record, tests=tests))
    (flake,) = ask(store, queries.flaky_tests, since=LONG_AGO)
    assert (flake.test, flake.failed, flake.ran, flake.commits_both) == ("t::x", 1, 2, 1)
    assert flake.low < 0.5 < flake.high


def test_a_test_that_is_broken_on_a_commit_is_not_flaky(store):
    store.write(rows_of(run("a", 0, [attempt(0, failed="s")]), tests={("unit", 1): [Result("t::x", "failed")]}))
    store.write(rows_of(run("b", 1, [attempt(1)]), tests={("unit", 1): [Result("t::x", "passed")]}))
    assert ask(store, queries.flaky_tests, since=LONG_AGO) == []


def test_sightings_count_times_and_pull_requests(store):
    for i, pr in enumerate([1, 1, 2, None]):
        store.write(rows_of(run(f"r{i}", i, [attempt(i, failed="s1")], pr=pr)))
    seen = ask(store, queries.sightings, signature="s1", since=LONG_AGO)
    assert (seen.times, seen.pulls) == (4, 2)


def test_failures_are_counted_by_category(store):
    store.write(rows_of(run("a", 0, [attempt(0, failed="s", category="segfault")])))
    store.write(rows_of(run("b", 1, [attempt(1, failed="t", category="segfault")])))
    store.write(rows_of(run("c", 2, [attempt(2, failed="u", category="nan_loss")])))
    assert ask(store, queries.failures_by, column="category", since=LONG_AGO) == [("segfault", 2), ("nan_loss", 1)]


def test_a_result_outlives_its_log_and_says_so(store):
    store.write(rows_of(run("a", 0, [attempt(0)]), folder="/runs/a"))
    assert ask(store, queries.forget_logs, folders=["/runs/a", "/runs/b"]) == 1
    assert len(ask(store, queries.runs_since, since=LONG_AGO)) == 1


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(0, 10, 0.0, 0.278), (1, 10, 0.018, 0.404), (5, 10, 0.237, 0.763)]
)
def test_wilson_interval_has_the_published_values(hits, n, low, high):
    assert queries.wilson(hits, n) == pytest.approx((low, high), abs=1e-3)


def test_how_often_a_job_failed_alike_at_commits_is_counted(store):
    for i, (commit, failed) in enumerate([("a", None), ("a", "s1"), ("b", "s2"), ("b", None), ("c", "s1")]):
        store.write(rows_of(run(f"r{i}", i, [attempt(i, failed=failed)], commit=commit)))
    asked = {"repository": "o/r", "job": "unit", "signature": "s1"}
    assert ask(store, seen_at, commits=["a", "b"], **asked) == (1, 3), "another failure says nothing"
    assert ask(store, seen_at, commits=[], **asked) == (0, 0)
    for i in range(10, 107):
        store.write(rows_of(run(f"r{i}", i, [attempt(i)], commit="a")))
    assert ask(store, seen_at, commits=["a", "b"], **asked) == (0, 50), "the past counts as fifty runs at most"


def test_a_flake_that_was_never_seen_but_in_one_pull_request_is_marked_as_its(store):
    both = {("unit", 1): [Result("t::new", "failed"), Result("t::old", "failed")],
            ("unit", 2): [Result("t::new", "passed"), Result("t::old", "passed")]}  # fmt: skip
    store.write(rows_of(run("a", 0, [attempt(0, 1, failed="s"), attempt(0.1, 2)], pr=4), tests=both))
    store.write(rows_of(run("b", 1, [attempt(1)]), tests={("unit", 1): [Result("t::old", "passed")]}))
    found = {f.test: f.only_pr for f in ask(store, queries.flaky_tests, since=LONG_AGO)}
    assert found == {"t::new": 4, "t::old": None}


def test_attempts_of_one_commit_in_two_pull_requests_are_counted_together(store):
    failed = {("unit", 1): [Result("t", "failed")]}
    store.write(rows_of(run("a", 0, [attempt(0, failed="s")], pr=4, commit="c"), tests=failed))
    store.write(rows_of(run("b", 1, [attempt(1)], pr=5, commit="c"), tests={("unit", 1): [Result("t", "passed")]}))
    (flake,) = ask(store, queries.flaky_tests, since=LONG_AGO)
    assert (flake.failed, flake.ran, flake.commits_both, flake.only_pr) == (1, 2, 1, None)
