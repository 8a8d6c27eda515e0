"""What jobs took, on both databases."""

import pytest
from sqlalchemy import event

from matrix.history.durations import durations
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.plan.forecast import Past
from matrix.records import CardRecord
from tests.matrix.history.made import attempt, run


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


def ask(store, **models):
    with store.begin() as c:
        return durations(c, repository="o/r", models=models, last=3)


def remember(store, name, hours, minutes, *, model=None, **more):
    a = attempt(hours, minutes=minutes, **more)
    a.cards = [CardRecord(uuid=name, index=0, model=model)] if model else []
    store.write(rows_of(run(name, hours, [a])))


def test_the_median_of_the_newest_passed_attempts_counts(store):
    for i, minutes in enumerate([50, 1, 2, 3]):
        remember(store, f"r{i}", i, minutes)
    remember(store, "failed", 9, 99, failed="s")
    assert ask(store, unit=frozenset(), never=frozenset()) == {"unit": Past(pytest.approx(120), 3)}


def test_other_models_of_cards_count_only_where_there_is_nothing_better(store):
    remember(store, "a", 0, 1, model="H20")
    remember(store, "b", 1, 5, model="A100")
    assert ask(store, unit=frozenset({"H20"})) == {"unit": Past(pytest.approx(60), 1)}
    assert ask(store, unit=frozenset({"B200"})) == {"unit": Past(pytest.approx(180), 2, other_cards=True)}
    assert ask(store, unit=frozenset()) == {"unit": Past(pytest.approx(180), 2, other_cards=True)}
    assert ask(store, unit=None) == {"unit": Past(pytest.approx(180), 2)}


def test_a_clock_that_was_set_back_makes_no_job_free(store):
    remember(store, "a", 0, -5)
    assert ask(store, unit=None)["unit"].seconds == 0.5


def test_many_jobs_are_asked_for_in_few_statements(store):
    remember(store, "a", 0, 1)
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    assert len(ask(store, unit=None, **{f"job{i}": None for i in range(129)})) == 1
    assert len([text for text in asked if "attempts" in text]) == 3
