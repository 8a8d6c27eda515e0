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


def draws(count, n, rate, seed=0):
    r = random.Random(seed)
    right, runs = 0, []
    for _ in range(count):
        broken_at = r.randrange(n)
        found, used = find(n, broken_at, lambda bad: bad or r.random() < rate)
        right += found == broken_at
        runs.append(used)
    return right, runs


def test_a_job_that_fails_by_chance_one_time_in_five_still_leads_to_its_commit():
    right, runs = draws(50, 64, 0.2)
    print(f"right {right} of 50, mean {statistics.mean(runs):.1f} runs, log2 {math.log2(64):.1f}")
    assert right >= 49


def test_a_break_that_fails_only_most_of_the_time_is_found():
    r = random.Random(1)
    right = 0
    for _ in range(20):
        broken_at = r.randrange(32)
        found, _ = find(32, broken_at, lambda bad: r.random() < 0.8 if bad else False)
        right += found == broken_at
    assert right >= 19


def test_what_the_history_knows_of_flakes_spares_runs():
    r = random.Random(2)
    known = [find(64, 40, lambda bad: bad, flakes=(0, 200))[1], find(64, 40, lambda bad: bad)[1]]
    assert known[0] <= known[1]
    assert find(64, 10, lambda bad: bad or r.random() < 0.2, flakes=(40, 200))[0] == 10


def test_how_many_runs_are_left_is_right_for_a_job_that_does_as_expected_and_shrinks():
    search = Search(64)
    said = search.left()
    while search.answer() is None:
        chances = search.posterior()
        likeliest = max(range(64), key=chances.__getitem__)
        before = search.left()
        commit = search.next()
        search.tell(commit, failed=commit >= likeliest)
        assert search.left() == before - 1
    assert search.left() == 0
    assert said >= math.log2(64)


def test_no_commit_is_an_error():
    with pytest.raises(ValueError, match="no commit"):
        Search(0)
