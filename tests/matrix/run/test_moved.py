"""Attempts whose place was taken away: a cluster that is made up, with two nodes of which some are not fit."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from matrix.engine.base import Outcome
from matrix.host.gpus import Card
from matrix.records import load
from matrix.run import concluding
from matrix.run import record as records
from matrix.run.loop import Runner
from matrix.run.prepare import Place
from matrix.spec.load import read
from matrix.spec.select import select


class Cluster:
    """Gives every attempt to the first node that it does not stay away from."""

    name, queue, cards = "slurm", True, ()

    def __init__(self, bad, nodes=("one", "two")):
        self.bad, self.nodes, self.asked = set(bad), nodes, []

    async def start(self, launch, leased):
        leased()
        self.asked.append((time.monotonic(), launch.exclude))
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        launch.log.write_text("")
        node = next(n for n in self.nodes if n not in launch.exclude)
        launch.began([node], [Card(f"{node}-0", 0, "H20")], 1764581400.0)
        good = Outcome("exit", 0, None, time.time(), time.time(), hosts=(node,))
        no_cards = Outcome("lost", None, None, time.time(), time.time(), problem="no cards", moved=True, unfit=(node,))
        return Over(no_cards if node in self.bad else good)

    def elsewhere(self, want, nodes, hosts):
        return bool(set(self.nodes) - set(hosts))

    async def held_by_others(self):
        return ()

    def reserve(self, uuids, tag):
        pass


class Over:
    def __init__(self, out):
        self.out = out

    async def wait(self):
        return self.out

    def cancel(self):
        pass

    kill = cancel


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(concluding, "_MOVES", (0.05, 0.1, 0.15))

    def run(cluster, listener=lambda job: None):
        (tmp_path / "matrix.yaml").write_text(json.dumps({"suites": {"s": {"jobs": {"j": {"command": "true"}}}}}))
        spec = read(tmp_path / "matrix.yaml")
        (tmp_path / "run").mkdir()
        record = records.new_record(spec, select(spec), "r1", "slurm")
        place = Place(tmp_path, tmp_path / "run")
        asyncio.run(Runner(record, spec.jobs, place, cluster, expected={"j": 1.0}, cpu_jobs=2, listener=listener).run())
        return load(tmp_path / "run" / "run.json").job("j")

    return run


def test_a_job_is_in_the_queue_until_its_nodes_and_cards_are_known(run):
    seen = []

    def listener(job):
        attempt = job.attempts[-1]
        seen.append((job.status, job.reason, attempt.hosts, [c.uuid for c in attempt.cards], attempt.started[:4]))

    run(Cluster(bad=[]), listener)
    (queued, placed), year = seen[:2], seen[0][4]
    assert queued == ("running", "in the queue of slurm", [], [], year)
    assert placed == ("running", None, ["one"], ["one-0"], "2025")


def test_a_node_without_the_cards_that_it_promised_is_left_alone_from_then_on(run):
    cluster = Cluster(bad=["one"])
    job = run(cluster)
    assert [exclude for _, exclude in cluster.asked] == [(), ("one",)]
    assert [a.status for a in job.attempts] == ["error", "passed"]


def test_where_no_node_has_the_cards_longer_and_longer_pauses_are_made(run):
    """A controller that has just restarted knows no cards for some seconds."""
    cluster = Cluster(bad=["one", "two"])
    job = run(cluster)
    assert [exclude for _, exclude in cluster.asked] == [(), ("one",), ("two",), ("one",)]
    assert job.status == "error"
    times = [at for at, _ in cluster.asked]
    assert all(b - a >= pause for a, b, pause in zip(times, times[1:], (0.05, 0.1, 0.15), strict=False))


def test_one_node_alone_is_asked_again(run):
    class Restarting(Cluster):
        async def start(self, launch, leased):
            handle = await super().start(launch, leased)
            return handle if len(self.asked) == 3 else Over(replace(handle.out, why="lost", moved=True, unfit=("one",)))

    cluster = Restarting(bad=[], nodes=("one",))
    assert [a.status for a in run(cluster).attempts] == ["error", "error", "passed"]
