"""Where card-hours went."""

import pytest

from matrix.history import overview
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.records import CardRecord, JobRecord, Status
from tests.matrix.history.made import attempt, run


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


def on_cards(record, n):
    record.cards = [CardRecord(uuid=f"GPU-{i}", index=i, model="H20") for i in range(n)]
    return record


def hours(store):
    with store.begin() as c:
        return {h.pr: h for h in overview.card_hours(c, since=0)}


def test_card_hours_are_told_apart_by_what_came_of_them(store):
    hang = on_cards(attempt(0, failed="s", minutes=60), 2)
    hang.status = Status.TIMEOUT
    store.write(rows_of(run("hang", 0, [hang], pr=1)))
    tries = [on_cards(attempt(1, 1, failed="s", minutes=30), 1), on_cards(attempt(2, 2, minutes=60), 1)]
    store.write(rows_of(run("again", 1, tries, pr=1)))
    store.write(rows_of(run("bad", 3, [on_cards(attempt(3, failed="s", minutes=15), 4)])))
    found = hours(store)
    assert (found[1].hangs, found[1].retries, found[1].useful, found[1].failed) == pytest.approx((2, 0.5, 1, 0))
    assert (found[None].failed, found[None].whole) == pytest.approx((1, 1))


def test_waiting_for_cards_counts_by_the_cards_that_were_waited_for(store):
    store.write(rows_of(run("r", 0, [on_cards(attempt(0.5, minutes=6), 4)], pr=1)))
    store.write(rows_of(run("q", 5, [attempt(5.5, minutes=6)], pr=2)))  # waits too, for no card
    found = hours(store)
    assert (found[1].waited, found[1].whole) == pytest.approx((2.0, 0.4))
    assert 2 not in found


def test_a_blocked_job_waited_until_its_blocker_had_failed_for_the_cards_that_it_once_had(store):
    store.write(rows_of(run("before", 0, [on_cards(attempt(0, minutes=6), 8)], job="lora", pr=1)))
    record = run("r", 10, [on_cards(attempt(10, failed="s", minutes=30), 1)], job="sft", pr=2)
    for name in ("lora", "never-ran"):
        record.jobs.append(JobRecord(name=name, suite="s", status=Status.BLOCKED, blocked_by=["sft"]))
    store.write(rows_of(record))
    found = hours(store)
    assert (found[2].waited, found[2].failed) == pytest.approx((4.0, 0.5))
    assert found[1].waited == 0
