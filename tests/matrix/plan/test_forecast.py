import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.plan.forecast import Past, expected_times, forecast
from matrix.plan.hosts import Card
from matrix.plan.schedule import Capacity
from matrix.spec.job import Cards, HandOff, Job

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))


def job(name, cards=1, needs=(), **more):
    return Job(name, "s", ("x",), cards=Cards(cards), needs=tuple(needs), produces=(HandOff(name, name),), **more)


def host(count):
    return Capacity(tuple(Card(str(i)) for i in range(count)), cpu_jobs=2)


def test_a_chain_runs_in_order_beside_what_needs_nothing():
    jobs = [job("a"), job("b", needs=["a"]), job("c")]
    plan = forecast(jobs, host(2), {"a": 10, "b": 5, "c": 12})
    assert {p.name: (p.start, p.end) for p in plan.planned} == {"a": (0, 10), "b": (10, 15), "c": (0, 12)}
    assert (plan.makespan, plan.bound) == (15, 15)


def test_the_clock_goes_by_actual_times_the_planner_by_expected_ones():
    jobs = [job("a"), job("b")]
    plan = forecast(jobs, host(1), {"a": 10, "b": 5}, {"a": 1, "b": 20})
    assert [(p.name, p.start) for p in plan.planned] == [("a", 0), ("b", 1)]
    assert plan.makespan == 21


def test_what_cannot_run_here_and_what_needs_it_is_left_out():
    plan = forecast(
        [job("wide", 4), job("after", needs=["wide"]), job("fine")],
        host(2),
        dict.fromkeys(["wide", "after", "fine"], 1.0),
    )
    assert [p.name for p in plan.planned] == ["fine"]


def test_expected_times_come_from_history_then_the_spec_then_the_neighbours():
    jobs = [
        job("known", expect=60.0),
        job("told", expect=30.0),
        job("beside"),
        Job("elsewhere", "t", ("x",), timeout=20.0),
    ]
    got = {n: (e.seconds, e.source) for n, e in expected_times(jobs, {"known": Past(90.0, 3)}).items()}
    assert got == {
        "known": (90, "history"),
        "told": (30, "expect"),
        "beside": (60, "median of its suite"),
        "elsewhere": (20, "median of all jobs"),
    }
    assert expected_times([job("alone", timeout=100.0)])["alone"].seconds == 50


def test_only_what_was_measured_or_said_of_a_job_is_known():
    jobs = [job("measured"), job("said", expect=60.0), job("neighbour")]
    times = expected_times(jobs, {"measured": Past(90.0, 3)})
    assert {name for name, e in times.items() if e.known} == {"measured", "said"}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_job_runs_once_after_its_needs_and_no_card_is_used_twice_at_a_time(data):
    count = data.draw(st.integers(1, 12))
    jobs, seconds = [], {}
    for i in range(count):
        needs = [str(k) for k in data.draw(st.sets(st.integers(0, i - 1), max_size=2))] if i else []
        jobs.append(job(str(i), data.draw(st.sampled_from([0, 1, 1, 2, 4])), needs))
        seconds[str(i)] = data.draw(st.floats(0.1, 100))
    expected = {n: s * data.draw(st.floats(0.3, 3)) for n, s in seconds.items()}
    plan = forecast(jobs, host(4), expected, seconds)
    at = {p.name: p for p in plan.planned}
    assert sorted(at) == sorted(seconds)
    assert plan.makespan >= plan.bound - 1e-6
    for j in jobs:
        assert all(at[need].end <= at[j.name].start + 1e-9 for need in j.needs)
    for p in plan.planned:
        for q in plan.planned:
            if p.name < q.name and set(p.cards) & set(q.cards):
                assert p.end <= q.start + 1e-9 or q.end <= p.start + 1e-9


def ratios(seeds):
    from makespan import simulate
    from makespan_jobs import job_set

    return sorted(simulate(job_set(seed)).ratio for seed in seeds)


def test_random_job_sets_end_near_the_bound():
    found = ratios(range(100, 105))
    assert found[len(found) // 2] <= 1.06
    assert found[-1] <= 1.20


@pytest.mark.soak
def test_the_fifty_job_sets_of_the_benchmark_end_near_the_bound():
    found = ratios(range(50))
    assert found[25] <= 1.06
    assert found[-1] <= 1.20
