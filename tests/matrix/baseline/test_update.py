import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.baseline.parse import Loss
from matrix.baseline.record import read_baseline
from matrix.baseline.update import line, propose, versions
from matrix.errors import UsageError
from matrix.records import Attempt, CardRecord, Fact, JobRecord, RunRecord, SpecRef, Status
from matrix.spec.job import Job, LossBaseline
from matrix.triage.model import Cause

STARTED, ENDED = "2026-12-01T09:30:00Z", "2026-12-01T09:31:00Z"
WITHIN = datetime(2026, 12, 1, 9, 30, 30, tzinfo=UTC).timestamp()


class Site:
    """A repository with one job that has run."""

    def __init__(self, root):
        self.root, self.folder = root, root / ".matrix" / "runs" / "r"
        (self.folder / "logs" / "sft").mkdir(parents=True)
        self.job = Job("sft", "s", ("true",), loss=LossBaseline(file="baselines/sft.{card}.txt"))
        card = CardRecord(uuid="GPU-1", index=0, model="H20")
        self.attempt = Attempt(n=1, started=STARTED, ended=ENDED, exit_code=0, log="logs/sft/1.log", cards=[card, card])
        self.record = JobRecord(name="sft", suite="s", status=Status.PASSED, attempts=[self.attempt])
        self.run = RunRecord(
            id="20261201-093000-7f3a", spec=SpecRef(path="matrix.yaml", sha256="0"), engine="local", host="h",
            commit="a13fcde", started=STARTED, jobs=[self.record], companions={"PaddlePaddle/PaddleFleet": "60700cc"},
        )  # fmt: skip

    def log(self, text):
        (self.folder / "logs" / "sft" / "1.log").write_text(text)

    def propose(self):
        return propose(self.job, self.record, self.run, root=self.root, folder=self.folder)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_new_baseline_says_where_it_comes_from(site):
    site.log("global_step: 1, loss: 1.50\nglobal_step: 2, loss: 1.25e0\n")
    site.record.facts.append(Fact(key="version.paddlepaddle-gpu", value="3.3.1"))
    found = site.propose()
    assert found.file == site.root / "baselines" / "sft.H20.txt"
    assert (found.new, found.steps, found.same) == (True, 2, False)
    header = [text for text in found.text.splitlines() if text.startswith("#")]
    for part in (
        "commit: a13fcde",
        "card: H20",
        "cards: 2",
        "run: 20261201-093000-7f3a, attempt 1",
        "companion: PaddlePaddle/PaddleFleet 60700cc",
        "version: paddlepaddle-gpu 3.3.1",
    ):
        assert any(part in text for text in header), part
    assert found.text.splitlines()[-2:] == ["1 1.50", "2 1.25e0"]


def test_what_changes_is_counted_and_the_first_change_named(site):
    site.log("step 1 loss 1.5\nstep 2 loss 1.26\nstep 3 loss 1.0\n")
    (site.root / "baselines").mkdir()
    (site.root / "baselines" / "sft.H20.txt").write_text("1 1.5\n2 1.25\n9 0.5\n")
    found = site.propose()
    assert (found.new, found.changed, found.dropped) == (False, 2, 1)
    assert found.first == "step 2: 1.25 -> 1.26"


def test_the_same_losses_are_no_change(site):
    site.log("step 1 loss 1.5\n")
    (site.root / "baselines").mkdir()
    (site.root / "baselines" / "sft.H20.txt").write_text("# older\n1 1.50\n")
    assert site.propose().same


def test_a_mismatch_alone_may_become_the_baseline(site):
    site.log("step 1 loss 1.5\n")
    site.record.status = Status.FAILED
    site.attempt.causes.append(
        Cause(category="loss_mismatch", rule="r", confidence=1, text="t", signature="8f3c2a1b9d04e6f7")
    )
    assert site.propose().new


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("nothing\n", "no loss was found"),
        ("step 1 loss nan\n", "step 1 is nan"),
        ("step 1 loss 1.0\nstep 2 loss -inf\n", "step 2 is -inf"),
        ("step 1 loss 1.0\nstep 1 loss 2.0\n", "1.0 in line 1, 2.0 in 2"),
    ],
)
def test_what_can_be_no_baseline_is_refused(site, log, message):
    site.log(log)
    with pytest.raises(UsageError, match=message):
        site.propose()


def test_a_run_that_failed_or_never_ran_gives_no_baseline(site):
    site.log("step 1 loss 1.0\n")
    site.attempt.exit_code = 1
    with pytest.raises(UsageError, match="ended passed in 20261201-093000-7f3a, exit 1"):
        site.propose()
    site.attempt.exit_code = 0
    site.attempt.causes.append(
        Cause(category="handoff_missing", rule="r", confidence=1, text="t", signature="8f3c2a1b9d04e6f7")
    )
    with pytest.raises(UsageError, match="handoff_missing"):
        site.propose()
    site.record.attempts.clear()
    with pytest.raises(UsageError, match="did not run"):
        site.propose()


def test_a_job_without_a_loss_baseline_is_told_how_to_get_one(site):
    site.job = Job("sft", "s", ("true",))
    with pytest.raises(UsageError, match="has no loss baseline"):
        site.propose()


def test_a_record_that_a_later_run_has_replaced_is_refused(site):
    site.job = Job("sft", "s", ("true",), loss=LossBaseline(file="b.txt", record="record.csv"))
    record = site.root / "record.csv"
    record.write_text("step,micro,main_loss,mtp_loss\n1,1,5.5,6.5\n1,2,5.25,6.25\n")
    with pytest.raises(UsageError, match="was not written by this attempt"):
        site.propose()
    os.utime(record, (WITHIN, WITHIN))
    found = site.propose()
    assert found.text.splitlines()[-4:] == ["1:1 5.5", "1:1 6.5 mtp", "1:2 5.25", "1:2 6.25 mtp"]
    assert found.steps == 1


def test_versions_come_from_the_records_meta_file(site):
    job = Job("sft", "s", ("true",), loss=LossBaseline(file="b.txt", record="record.csv"))
    (site.root / "record.csv.meta.json").write_text('{"versions": {"paddle": "3.3.1"}}')
    assert versions(site.record, job, site.root) == {"paddle": "3.3.1"}
    (site.root / "record.csv.meta.json").write_text("[")
    assert all("where the baseline was written" in v for v in versions(site.record, job, site.root).values())


@given(
    st.integers(0, 10**9),
    st.floats(allow_nan=False),
    st.none() | st.integers(0, 99),
    st.sampled_from(["loss", "mtp"]),
    st.sampled_from([repr, float.hex, "{:.20f}".format, "{:e}".format]),
)
def test_a_line_of_a_baseline_is_read_back_exactly(step, value, micro, name, form):
    loss = Loss(step, value, form(value), micro=micro, name=name)
    (again,) = read_baseline([line(loss)])
    assert (again.key, again.value) == (loss.key, value)
