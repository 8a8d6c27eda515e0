import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.plan.hosts import PRETENDED, Card
from matrix.plan.schedule import SHARERS, Capacity, Ready, Running, decide, remaining


def cards(count, model=None, start=0):
    return tuple(Card(str(i), model) for i in range(start, start + count))


def starts(ready, running=(), capacity=None):
    decision = decide(ready, running, capacity or Capacity(cards(4), cpu_jobs=2))
    return {s.name: s.cards for s in decision.starts}


def test_the_longest_expected_starts_first():
    ready = [Ready("short", 1, 1), Ready("long", 9, 1), Ready("middle", 5, 1)]
    assert list(starts(ready, capacity=Capacity(cards(2)))) == ["long", "middle"]


def test_a_short_job_at_the_head_of_a_long_chain_goes_before_a_long_one():
    ready = [Ready("long", 9, 1), Ready("head", 1, 1, tail=20)]
    assert list(starts(ready, capacity=Capacity(cards(1)))) == ["head"]


def test_equal_jobs_start_in_the_order_of_their_names_on_the_first_cards():
    ready = [Ready(n, 5, 1) for n in "cab"]
    assert starts(ready, capacity=Capacity(cards(2))) == {"a": ("0",), "b": ("1",)}


def test_a_card_that_fits_behind_the_reservation_does_not_idle():
    running = [Running("r", ("0", "1"), remaining=10)]
    ready = [Ready("wide", 30, 4), Ready("short", 9, 1), Ready("long", 11, 1)]
    decision = decide(ready, running, Capacity(cards(4)))
    assert [s.name for s in decision.starts] == ["short"], "ends before the wide job can start"
    assert decision.reservation is not None
    assert (decision.reservation.name, decision.reservation.after) == ("wide", 10)


def test_a_long_job_may_use_cards_that_the_reserved_job_will_not_need():
    running = [Running("r", ("0", "1"), remaining=10)]
    ready = [Ready("wide", 30, 3), Ready("long", 25, 1)]
    assert starts(ready, running) == {"long": ("3",)}
    assert starts([*ready, Ready("long2", 24, 1)], running) == {"long": ("3",)}


def test_models_are_told_apart_and_a_job_without_wish_leaves_the_rare_cards_alone():
    host = Capacity((*cards(3, "H20"), *cards(1, "A100", 3)))
    assert starts([Ready("any", 9, 1), Ready("a100", 5, 1, "A100")], capacity=host) == {"any": ("0",), "a100": ("3",)}
    assert starts([Ready("h200", 5, 1, "H200")], capacity=host) == {}


def test_pretended_cards_suit_every_wish():
    assert starts([Ready("j", 5, 2, "H20")], capacity=Capacity(cards(2, PRETENDED))) == {"j": ("0", "1")}


def test_jobs_that_are_not_exclusive_share_a_card_up_to_a_limit():
    ready = [Ready(f"s{i}", 5, 1, exclusive=False) for i in range(SHARERS + 2)]
    got = starts([*ready, Ready("own", 4, 1)], capacity=Capacity(cards(2)))
    assert sorted(got.values()).count(("0",)) == SHARERS
    assert "own" not in got, "the second card holds the other two sharers"


def test_a_shared_card_is_not_given_to_an_exclusive_job():
    running = [Running("s", ("0",), 5, exclusive=False)]
    assert starts([Ready("own", 5, 1)], running, Capacity(cards(2))) == {"own": ("1",)}
    assert starts([Ready("own", 5, 2)], running, Capacity(cards(2))) == {}


def test_jobs_of_the_cpu_wait_for_each_other_and_for_memory_only():
    host = Capacity(cards(1), cpu_jobs=2, memory=10)
    ready = [Ready("a", 9, memory=6), Ready("b", 8, memory=6), Ready("c", 7, memory=2), Ready("d", 6)]
    assert list(starts(ready, capacity=host)) == ["a", "c"]


def test_a_job_that_no_empty_host_holds_is_passed_over_and_blocks_nobody():
    decision = decide([Ready("huge", 99, 16), Ready("small", 1, 1)], [], Capacity(cards(4)))
    assert [s.name for s in decision.starts] == ["small"]
    assert decision.reservation is None


@pytest.mark.parametrize(
    ("expected", "elapsed", "limit", "left"),
    [(10, 4, 100, 6), (10, 10, 100, 0), (10, 14, 100, 4), (10, 90, 100, 10), (10, 120, 100, 0)],
)
def test_an_overdue_job_is_guessed_to_be_late_once_more_but_never_beyond_its_limit(expected, elapsed, limit, left):
    assert remaining(expected, elapsed, limit) == left


def test_cards_do_not_idle_beside_a_job_that_is_long_overdue():
    ready = [Ready("wide", 30, 4), Ready("short", 5, 1)]
    assert starts(ready, [Running("hangs", ("0",), remaining(10, 17))]) == {"short": ("1",)}
    assert starts(ready, [Running("nearly done", ("0",), remaining(10, 9))]) == {}


READY = st.lists(
    st.builds(
        Ready,
        name=st.uuids().map(str),
        expected=st.floats(0.1, 1000),
        cards=st.sampled_from([0, 1, 1, 1, 2, 2, 4, 8]),
        model=st.sampled_from([None, None, "H20", "A100"]),
        exclusive=st.booleans(),
        memory=st.sampled_from([0, 0, 3, 7]),
        waited=st.floats(0, 10000),
        tail=st.floats(0, 1000),
    ),
    max_size=12,
    unique_by=lambda r: r.name,
)
HOST = Capacity((*cards(5, "H20"), *cards(3, "A100", 5)), cpu_jobs=2, memory=12)


@settings(max_examples=300)
@given(READY, READY, st.data())
def test_no_card_is_overcommitted_and_none_idles_when_something_fits_behind_the_reservation(before, ready, data):
    # What runs was started by the planner itself, some while ago.
    first = decide(before, [], HOST)
    by_name = {r.name: r for r in before}
    running = [
        Running(s.name, s.cards, data.draw(st.floats(0, 1000)), by_name[s.name].exclusive, by_name[s.name].memory)
        for s in first.starts
    ]
    ready = [r for r in ready if r.name not in {s.name for s in first.starts}]
    decision = decide(ready, running, HOST)
    by_name |= {r.name: r for r in ready}
    holders = {card.id: [] for card in HOST.cards}
    for name, held in [(r.name, r.cards) for r in running] + [(s.name, s.cards) for s in decision.starts]:
        assert len(set(held)) == len(held) == by_name[name].cards
        for card in held:
            holders[card].append(by_name[name])
            model = next(c.model for c in HOST.cards if c.id == card)
            assert by_name[name].model in (None, model)
    for jobs in holders.values():
        assert len(jobs) <= 1 or (len(jobs) <= SHARERS and not any(j.exclusive for j in jobs))
    all_running = [by_name[r.name] for r in running] + [by_name[s.name] for s in decision.starts]
    assert sum(1 for j in all_running if not j.cards) <= HOST.cpu_jobs
    assert sum(j.memory for j in all_running) <= HOST.memory or len([j for j in all_running if j.memory]) == 1
    # Asked again with what it started, it starts nothing more: it did not stop half-way.
    now_running = running + [
        Running(s.name, s.cards, by_name[s.name].expected, by_name[s.name].exclusive, by_name[s.name].memory)
        for s in decision.starts
    ]
    left = [r for r in ready if r.name not in {s.name for s in decision.starts}]
    if decision.reservation is None:
        assert all(not decide([r], now_running, HOST).starts for r in left), "it fits, and nobody waits for it"
    else:
        after = decision.reservation.after
        idle = [r for r in left if r.name != decision.reservation.name and r.expected <= after]
        assert all(not decide([r], now_running, HOST).starts for r in idle), "it fits and would end in time"


@given(READY)
def test_an_empty_host_always_starts_something_that_fits(ready):
    fitting = [r for r in ready if decide([r], [], HOST).starts]
    assert bool(decide(ready, [], HOST).starts) == bool(fitting)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.floats(1, 50), st.randoms(use_true_random=False))
def test_a_wide_job_starts_within_the_time_of_what_ran_when_it_came_however_many_small_ones_arrive(width, length, r):
    """A stream of one-card jobs that would keep every card busy for ever: greedy first-fit never starts the wide one."""
    host = Capacity(cards(8))
    running: dict[str, tuple[tuple[str, ...], float]] = {}
    for i in range(8):
        running[f"old{i}"] = ((str(i),), r.uniform(0.5, 1) * length)
    longest = max(end for _, end in running.values())
    now, count, waiting = 0.0, 0, []
    while True:
        waiting += [Ready(f"n{count + i}", r.uniform(0.3, 1) * length, 1) for i in range(8)]
        count += 8
        wide = Ready("wide", length, width, waited=now)
        busy = [Running(n, c, end - now) for n, (c, end) in running.items()]
        decision = decide([wide, *waiting], busy, host)
        lengths = {w.name: w.expected for w in waiting} | {"wide": length}
        for s in decision.starts:
            running[s.name] = (s.cards, now + lengths[s.name])
        waiting = [w for w in waiting if w.name not in running]
        if "wide" in running:
            break
        now = min(end for _, end in running.values())
        running = {n: (c, end) for n, (c, end) in running.items() if end > now}
        assert now <= longest + 1e-6
    assert now <= longest + 1e-6


def test_waiting_makes_a_job_urgent_so_that_no_stream_of_others_passes_it_for_ever():
    other = Ready("other", 100, 4, tail=1000)
    assert list(starts([other, Ready("old", 1, 1)], capacity=Capacity(cards(4)))) == ["other"]
    old = Ready("old", 1, 1, waited=1e6)
    assert next(iter(starts([other, old], capacity=Capacity(cards(4))))) == "old"


@pytest.mark.parametrize("after", [0.0, math.inf])
def test_a_job_that_waits_for_memory_gets_a_reservation_too(after):
    running = [Running("r", (), 5, memory=8)]
    decision = decide([Ready("big", 9, memory=8)], running, Capacity((), cpu_jobs=4, memory=10))
    assert decision.starts == ()
    assert decision.reservation is not None
    assert decision.reservation.after == 5


def test_cards_on_which_a_job_failed_are_taken_last_or_not_at_all():
    avoid = frozenset({"0", "1"})
    assert starts([Ready("j", 5, 1, avoid=avoid)], capacity=Capacity(cards(3))) == {"j": ("2",)}
    assert starts([Ready("j", 5, 2, avoid=avoid)], capacity=Capacity(cards(3))) == {"j": ("2", "0")}
    strict = Ready("j", 5, 1, avoid=avoid, strict=True)
    assert starts([strict], [Running("r", ("2",), 9)], Capacity(cards(3))) == {}
    assert starts([Ready("j", 5, 2, avoid=avoid, strict=True)], capacity=Capacity(cards(3))) == {}


TRIES = st.lists(
    st.tuples(
        st.integers(1, 4),  # cards
        st.lists(st.tuples(st.floats(0.1, 30), st.floats(0, 60)), min_size=1, max_size=4),  # (seconds, pause after)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(TRIES)
def test_with_pauses_no_card_is_shared_nobody_starves_and_a_pause_holds_nothing(jobs):
    """Every try but the last fails; the next one stays away from its cards while there are enough others."""
    host = Capacity(cards(4))
    now, tries, avoid = 0.0, dict.fromkeys(range(len(jobs)), 0), dict.fromkeys(range(len(jobs)), frozenset())
    ready_at = dict.fromkeys(tries, 0.0)  # of those that wait or pause
    running: dict[int, tuple[float, tuple[str, ...]]] = {}
    while ready_at or running:
        queue = [
            Ready(str(j), jobs[j][1][tries[j]][0], jobs[j][0], waited=now - at, avoid=avoid[j], strict=True)
            for j, at in ready_at.items()
            if at <= now
        ]
        busy = [Running(str(j), held, end - now) for j, (end, held) in running.items()]
        decision = decide(queue, busy, host)
        for start in decision.starts:
            j = int(start.name)
            taken = {card for _, held in running.values() for card in held}
            assert not taken & set(start.cards)
            assert not avoid[j] & set(start.cards)
            running[j] = (now + jobs[j][1][tries[j]][0], start.cards)
            del ready_at[j]
        if queue and not running:
            raise AssertionError("jobs are ready, all cards are free, and nothing starts")
        moments = [end for end, _ in running.values()] + [at for at in ready_at.values() if at > now]
        if not moments:
            break
        now = min(moments)
        for j, (end, held) in list(running.items()):
            if end <= now:
                del running[j]
                pause = jobs[j][1][tries[j]][1]
                tries[j] += 1
                if tries[j] < len(jobs[j][1]):
                    ready_at[j] = now + pause
                    tried = avoid[j] | set(held)
                    avoid[j] = next((a for a in (tried, frozenset(held)) if 4 - len(a) >= jobs[j][0]), frozenset())
    assert tries == {j: len(job[1]) for j, job in enumerate(jobs)}
