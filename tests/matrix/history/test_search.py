import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.history.search import Search


def find(n, broken_at, draw, **kw):
    """Run a search against a made job; `draw(bad)` says whether a run fails."""
    search = Search(n, **kw)
    while (found := search.answer()) is None:
        commit = search.next()
        search.tell(commit, failed=draw(commit >= broken_at))
        assert search.runs < 500
    return found, search.runs


@given(st.integers(1, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_a_steady_job_leads_to_its_commit(n, data):
    broken_at = data.draw(st.integers(0, n - 1))
    assert find(n, broken_at, lambda bad: bad)[0] == broken_at


def test_a_steady_job_needs_little_more_than_plain_bisection():
    runs = [find(64, k, lambda bad: bad)[1] for k in range(0, 64, 5)]
    assert statistics.median(runs) <= math.log2(64) + 6


def draws(count, n, flake, miss=0.0, seed=0, **kw):
    """Draw breaks; how often the right commit is found, and the runs that it took."""
    r = random.Random(seed)
    right, runs = 0, []
    for _ in range(count):
        broken_at = r.randrange(n)
        found, used = find(n, broken_at, lambda bad: r.random() >= miss if bad else r.random() < flake, **kw)
        right += found == broken_at
        runs.append(used)
    mean = statistics.mean(runs)
    print(f"flake {flake}, miss {miss}: right {right} of {count}, mean {mean:.1f} runs, log2 {math.log2(n):.1f}")
    return right, mean


def test_a_job_that_fails_by_chance_one_time_in_five_still_leads_to_its_commit():
    right, mean = draws(50, 64, 0.2)
    assert right >= 49
    assert mean <= 19


@pytest.mark.parametrize(("flake", "miss"), [(0.0, 0.1), (0.2, 0.1)])
def test_a_break_that_shows_nine_times_in_ten_is_found(flake, miss):
    assert draws(50, 64, flake, miss)[0] >= 48


@pytest.mark.soak
@pytest.mark.parametrize(
    ("flake", "miss", "most"),
    [(0.0, 0.0, 13), (0.05, 0.0, 14), (0.2, 0.0, 18.5), (0.4, 0.0, 31), (0.0, 0.1, 22), (0.2, 0.1, 36)],
)
def test_two_hundred_draws_of_each_kind_of_noise(flake, miss, most):
    right, mean = draws(200, 64, flake, miss)
    assert right >= 196
    assert mean <= most


def test_what_the_history_knows_of_flakes_spares_runs():
    assert draws(20, 64, 0.0, flakes=(0, 50))[1] <= draws(20, 64, 0.0)[1] - 2
    assert draws(20, 64, 0.2, flakes=(10, 50))[0] == 20


def test_how_many_runs_are_left_is_right_for_a_job_that_does_as_expected_and_shrinks():
    search = Search(64)
    said = search.left()
    while search.answer() is None:
        likeliest, _ = search.likeliest()
        before = search.left()
        commit = search.next()
        search.tell(commit, failed=commit >= likeliest)
        assert search.left() == before - 1
    assert search.left() == 0
    assert said >= math.log2(64)


def test_a_failure_that_no_commit_brought_is_no_commits():
    r = random.Random(3)
    found = [find(16, 99, lambda bad: r.random() < 0.2)[0] for _ in range(20)]
    assert found.count(16) >= 19


def test_a_break_older_than_the_good_commit_is_said_to_be():
    assert find(16, -1, lambda bad: bad) == (-1, find(16, -1, lambda bad: bad)[1])
    assert find(1, -1, lambda bad: bad)[0] == -1
    search = Search(1)
    assert search.answer() is None, "one commit alone is not to blame before anything ran"


def test_no_commit_is_an_error():
    with pytest.raises(ValueError, match="no commit"):
        Search(0)
