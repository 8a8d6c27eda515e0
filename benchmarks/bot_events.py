"""How the bot keeps up: a flood of webhooks over many pull requests, and how soon a lone event is a comment.

Runs the queue, the worker and GitHub's double (unchecked, in this process) with the pacing of real use.

    python benchmarks/bot_events.py [--seconds 60] [--rate 500] [--pulls 50]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bot")]

from fake_github import FakeGitHub  # noqa: E402 - found through the line above

from bot.events import subject  # noqa: E402
from bot.queue import Delivery, SqliteQueue  # noqa: E402
from bot.verbs.serve import bots  # noqa: E402
from bot.worker import Metrics, Worker  # noqa: E402

LOGIN = "ci-bot[bot]"
LOG = "collected 1 item\nModuleNotFoundError: No module named 'x'\n"


def sha(number: int) -> str:
    return f"{number:040x}"


class Stand:
    """A double, a queue and a worker."""

    def __init__(self, folder: Path) -> None:
        self.fake = FakeGitHub().start()
        self.fake.strict = False
        self.queue = SqliteQueue(folder / "queue.db")
        os.environ |= {"GITHUB_API_URL": self.fake.base, "GITHUB_TOKEN": "t"}
        self.worker = Worker(self.queue, bots(self.queue.diagnoses(), LOGIN, pace=1.0), LOGIN, Metrics())
        self.worker.start()
        self.n = 0

    def add(self, number: int, jobs: int) -> int:
        """Make a pull request with a run that goes on."""
        self.fake.add_pull(number, sha(number), files=["a.py"], branch=f"b{number}")
        return self.fake.add_run(sha(number), [(f"job {i}", None, "") for i in range(jobs)], branch=f"b{number}")

    def send(self, run: int) -> None:
        """Put a delivery about a run into the queue."""
        self.n += 1
        payload = {"action": "in_progress", "workflow_run": self.fake.run_view(run)}
        payload["repository"] = {"full_name": "octo/repo"}
        self.queue.put(Delivery(f"d{self.n}", "workflow_run", subject("workflow_run", payload), json.dumps(payload)))
        self.worker.wake()

    def drain(self, seconds: float) -> float:
        """Wait until the queue is empty; returns how long."""
        begun = time.monotonic()
        while self.queue.depth() and time.monotonic() - begun < seconds:
            time.sleep(0.05)
        return time.monotonic() - begun

    def stop(self) -> None:
        """Stop worker and double."""
        self.worker.stop()
        self.fake.stop()


def flood(folder: Path, seconds: float, rate: float, pulls: int) -> dict[str, float]:
    stand = Stand(folder)
    runs = [stand.add(n, 20) for n in range(1, pulls + 1)]
    begun, cpu = time.monotonic(), time.process_time()
    sent, job = 0, 0
    while (now := time.monotonic() - begun) < seconds:
        while sent < now * rate / 60:
            run = runs[sent % pulls]
            if sent % pulls == 0:
                job += 1
            stand.fake.finish(run, {f"job {job - 1}": ("failure", LOG)})
            stand.send(run)
            sent += 1
        time.sleep(0.01)
    writes = len(stand.fake.writes())
    left = stand.drain(300)
    used = time.process_time() - cpu
    comments = sum(len(stand.fake.comments_of(n, LOGIN)) for n in range(1, pulls + 1))
    right = sum(f"{job} of 20 jobs failed" in c for n in range(1, pulls + 1) for c in stand.fake.comments_of(n, LOGIN))
    stand.stop()
    return {
        "events": sent,
        "writes_a_minute": round(writes / seconds * 60, 1),
        "seconds_to_catch_up": round(left, 1),
        "cpu_share_with_double": round(used / (seconds + left), 2),
        "pull_requests": pulls,
        "comments": comments,
        "comments_up_to_date": right,
    }


def lone(folder: Path, times: int) -> dict[str, float]:
    stand = Stand(folder)
    took = []
    for n in range(1, times + 1):
        run = stand.add(n, 1)
        stand.fake.finish(run, {"job 0": ("failure", LOG)})
        begun = time.monotonic()
        stand.send(run)
        while not stand.fake.comments_of(n, LOGIN) and time.monotonic() - begun < 30:
            time.sleep(0.005)
        took.append(time.monotonic() - begun)
        stand.drain(30)
        time.sleep(1.2)
    stand.stop()
    return {"events": times, "median_seconds": round(statistics.median(took), 3), "worst_seconds": round(max(took), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=500, help="events a minute")
    parser.add_argument("--pulls", type=int, default=50)
    parser.add_argument("--lone", type=int, default=9, help="lone events")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        result = {"lone": lone(Path(a), given.lone), "flood": flood(Path(b), given.seconds, given.rate, given.pulls)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
