import subprocess
import sys
from pathlib import Path

import pytest

from bot.queue import KEEP_DONE, LEASE, MAX_TRIES, Delivery, SqliteQueue
from matrix.errors import ToolError


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(tmp_path, clock):
    q = SqliteQueue(tmp_path / "q.db", clock=clock)
    yield q
    q.close()


def d(ident, subject="o/r@a"):
    return Delivery(str(ident), "workflow_run", subject, "{}")


def test_a_delivery_is_kept_once_even_after_it_was_handled(queue):
    assert queue.put(d(1))
    assert not queue.put(d(1))
    queue.done(queue.take())
    assert not queue.put(d(1))
    assert queue.take() is None


def test_deliveries_of_one_subject_come_together_and_subjects_in_order(queue, clock):
    for i, subject in enumerate("abab"):
        clock.now += 1
        queue.put(d(i, subject))
    first, second = queue.take(), queue.take()
    assert [x.id for x in first.deliveries] == ["0", "2"]
    assert [x.id for x in second.deliveries] == ["1", "3"]
    assert queue.take() is None


def test_a_subject_is_with_one_worker_at_a_time(queue):
    queue.put(d(1))
    batch = queue.take()
    queue.put(d(2))
    assert queue.take() is None
    queue.done(batch)
    assert [x.id for x in queue.take().deliveries] == ["2"]


def test_a_failed_batch_comes_back_later_and_later_and_is_given_up_in_the_end(queue, clock):
    queue.put(d(1))
    waits = []
    for n in range(1, MAX_TRIES + 1):
        batch = queue.take()
        assert batch.tries == n
        again = queue.fail(batch, "502")
        assert again == (n < MAX_TRIES)
        start = clock.now
        while again and clock.now < start + 2000:
            clock.now += 1
            if (back := queue.take()) is not None:
                queue._local.db.execute("UPDATE deliveries SET state='waiting', tries = tries - 1")
                assert back.tries == n + 1
                break
        waits.append(clock.now - start)
    assert waits[0] == 5
    assert waits[:-1] == sorted(waits[:-1])
    assert queue.depth() == 0


def test_what_a_dead_worker_held_is_taken_again(queue, clock):
    queue.put(d(1))
    assert queue.take()
    clock.now += LEASE + 1
    assert queue.take().tries == 2


def test_ids_are_forgotten_after_github_would_redeliver(queue, clock):
    queue.put(d(1))
    queue.done(queue.take())
    clock.now += KEEP_DONE + 1
    queue.put(d(2))
    queue.done(queue.take())
    assert queue.put(d(1))


def test_a_killed_process_loses_nothing(tmp_path):
    path = tmp_path / "q.db"
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom bot.queue import *\nq = SqliteQueue(Path(sys.argv[1]))\n"
        "for i in range(50): q.put(Delivery(str(i), 'e', str(i % 5), '{}'))\nq.take()\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parents[2])
    assert done.returncode == -9
    queue = SqliteQueue(path, clock=lambda: 1e12)
    seen = set()
    while batch := queue.take():
        seen |= {x.id for x in batch.deliveries}
        queue.done(batch)
    assert seen == {str(i) for i in range(50)}
    queue.close()


def test_diagnoses_are_kept(queue):
    kept = queue.diagnoses()
    kept[7] = "x"
    assert kept.get(7) == "x"
    assert kept.get(8) is None


def test_a_place_that_cannot_hold_a_queue_is_an_error(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(ToolError, match="cannot keep a queue"):
        SqliteQueue(tmp_path / "f" / "q.db")
