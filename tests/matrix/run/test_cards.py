import asyncio
import textwrap

import pytest

from matrix.engine.local import LocalEngine
from matrix.history.remember import judge
from matrix.host.gpus import pretended
from matrix.host.health import Health, Holder
from matrix.records import Status
from matrix.run import record as records
from matrix.run.loop import Runner
from matrix.run.prepare import Place
from matrix.spec.load import read
from matrix.spec.select import select

ORPHAN = Holder(486, 135 << 30, "python left_over.py")


class Driver:
    """Answers like `matrix.host.health.look`, of cards that are made dirty or clean by a test."""

    def __init__(self, dirty=()):
        self.dirty = set(dirty)
        self.probed = []

    def __call__(self, uuids, probe):
        self.probed += [u for u in uuids if probe]
        return [Health(u, used=136 << 30, holders=(ORPHAN,)) if u in self.dirty else Health(u) for u in uuids]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_LEASE_DIR", str(tmp_path / "leases"))

    def run(text, driver, cards="2"):
        (tmp_path / "matrix.yaml").write_text(textwrap.dedent(text))
        spec = read(tmp_path / "matrix.yaml")
        folder = tmp_path / "run"
        folder.mkdir()
        record = records.new_record(spec, select(spec), "r1", "local")
        engine = LocalEngine(pretended(cards))
        runner = Runner(
            record, spec.jobs, Place(tmp_path, folder, {}, {}), engine,
            expected={job.name: 1.0 for job in spec.jobs}, cpu_jobs=2, health=driver,
        )  # fmt: skip
        try:
            asyncio.run(runner.run())
        finally:
            engine.close()
        judge(record, folder, url=f"sqlite:///{tmp_path}/h.sqlite")
        return record

    return run


ONE = """
    suites:
      s:
        jobs:
          one: {command: "true", cards: 1}
          two: {command: "true", cards: 1}
    """


def test_a_dirty_card_is_set_aside_with_its_evidence_and_the_jobs_run_on_the_other(run):
    record = run(ONE, Driver({"PRETENDED-0"}))
    assert [j.status for j in record.jobs] == [Status.PASSED, Status.PASSED]
    assert {a.cards[0].uuid for j in record.jobs for a in j.attempts} == {"PRETENDED-1"}
    (fact,) = [f for j in record.jobs for f in j.facts if f.key == "card_set_aside"]
    assert "process 486 (python left_over.py) holds 135.0 GiB" in fact.value


def test_without_a_clean_card_the_job_is_not_started_and_the_host_is_to_blame(run):
    record = run(ONE, Driver({"PRETENDED-0", "PRETENDED-1"}))
    for job in record.jobs:
        assert job.status is Status.ERROR
        assert job.attempts[-1].causes[0].category == "card_unhealthy"
    assert "infra" in {j.verdict.value for j in record.jobs}


def test_an_out_of_memory_says_whose_memory_it_was(run):
    driver = Driver()
    text = """
        suites:
          s:
            jobs:
              one:
                command: "touch $PWD/taken; echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2; exit 1"
                cards: 1
        """

    def looked(uuids, probe):
        # The orphan takes the card while the job runs: the second look, after its end, sees it.
        found = driver(uuids, probe)
        driver.dirty = set(uuids)
        return found

    record = run(text, looked, cards="1")
    (job,) = record.jobs
    assert job.attempts[0].causes[0].category == "cuda_out_of_memory"
    assert any(f.key == "card_held_by_others" and "process 486" in f.value for f in job.facts)
    assert job.verdict.value == "infra"


def test_a_card_is_probed_at_its_first_use_and_not_at_every_job(run):
    driver = Driver()
    run(ONE, driver, cards="1")
    assert driver.probed == ["PRETENDED-0"]
