import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.engine.local import LocalEngine
from matrix.host.gpus import pretended
from matrix.plan.hosts import Card
from matrix.records import Attempt, CardRecord, Retry, Status, load
from matrix.run import record as records
from matrix.run.elsewhere import elsewhere
from matrix.run.loop import Runner
from matrix.run.prepare import Place
from matrix.run.retry import Again, again
from matrix.spec.job import Cards, Job
from matrix.spec.load import known_categories, read
from matrix.spec.retry import NEVER, RetryRule, shipped, unknown_categories
from matrix.spec.select import select
from matrix.triage.model import Cause

EVERYTHING = [RetryRule()]


def cause(category, *, tests=()):
    return Cause(category=category, rule="r", confidence=1, text="t", signature="s", tests=list(tests))


def tried(status, categories, attempt, allowed, policy=None, tests=(), **kw):
    causes = [cause(c) for c in categories]
    policy = shipped() if policy is None else policy
    return again(policy, Status(status), causes, tests, attempt=attempt, allowed=allowed, **kw)


@pytest.mark.parametrize(
    ("status", "categories", "attempt", "allowed", "wanted"),
    [
        ("failed", ["network_failure"], 1, 1, True),
        ("failed", ["network_failure"], 2, 1, False),
        ("failed", ["network_failure"], 1, 0, False),
        ("failed", ["network_failure", "test_assertion"], 1, 3, False),
        ("failed", [], 1, 3, False),
        ("failed", ["unknown"], 1, 3, False),
        ("error", ["runner_lost"], 1, 1, True),
        ("timeout", ["job_timeout"], 1, 1, False),
        ("cancelled", ["runner_lost"], 1, 1, False),
    ],
)
def test_who_is_tried_again_by_the_policy_that_comes_along(status, categories, attempt, allowed, wanted):
    assert (tried(status, categories, attempt, allowed) is not None) is wanted


@pytest.mark.parametrize("category", sorted(NEVER))
def test_wrong_results_are_never_tried_again_whatever_the_policy_says(category):
    assert tried("failed", [category], 1, 9, EVERYTHING) is None
    assert tried("failed", ["port_in_use", category], 1, 9, EVERYTHING) is None
    with pytest.raises(ValueError, match="never tried again"):
        RetryRule(categories=[category])


def test_a_failed_test_is_a_result_whatever_made_it_fail():
    assert tried("failed", ["network_failure"], 1, 9, EVERYTHING, tests=["t.py::test_a"]) is None
    causes = [cause("network_failure", tests=["t.py::test_a"])]
    assert again(EVERYTHING, Status.FAILED, causes, [], attempt=1, allowed=9) is None


def test_the_policy_that_comes_along_speaks_of_categories_that_there_are(tmp_path):
    assert list(unknown_categories(shipped(), known_categories(tmp_path))) == []


def test_the_first_rule_that_fits_decides_by_category_verdict_and_attempt():
    policy = [
        RetryRule(categories=["hub_offline"], retry=False),
        RetryRule(verdicts=["infra"], where="other-host", wait="1m"),
        RetryRule(categories=["port_in_use"], attempts=[1]),
        RetryRule(categories=["port_in_use"], attempts=[2], where="other-card", otherwise="no"),
    ]
    ask = lambda category, attempt=1, verdict="cannot-tell": tried(  # noqa: E731
        "failed", [category], attempt, 9, policy, verdict=verdict
    )
    assert ask("hub_offline", verdict="infra") is None
    assert ask("segfault") is None
    assert ask("segfault", verdict="infra") == Again("other-host", "any", 60.0)
    assert ask("port_in_use") == Again()
    assert ask("port_in_use", 2) == Again("other-card", "no")
    assert ask("port_in_use", 3) is None


def test_of_several_causes_the_strictest_place_and_the_longest_pause_hold():
    policy = [RetryRule(categories=["port_in_use"], wait="9s"), RetryRule(where="other-card", otherwise="no")]
    assert tried("failed", ["port_in_use", "nccl_error"], 1, 1, policy) == Again("other-card", "no", 9.0)


@given(st.floats(0, 1e4), st.floats(1, 100), st.floats(0, 1e4), st.integers(0, 1000))
def test_pauses_grow_to_their_limit_and_never_shrink(wait, factor, longest, n):
    rule = RetryRule.model_construct(wait=wait, factor=factor, longest=longest)
    assert rule.pause(0) <= rule.pause(n) <= rule.pause(n + 1) <= max(wait, longest)


def attempt(*cards, hosts=()):
    return Attempt(n=1, started="", log="", hosts=list(hosts), cards=[_card(c) for c in cards])


def _card(uuid):
    return CardRecord(uuid=uuid, index=0, model="H20")


def job(count=1):
    return Job(name="j", suite="s", command=("true",), cards=Cards(count))


HERE = [Card("a", "H20"), Card("b", "H20"), Card("c", "H20")]
NOWHERE = lambda _: False  # noqa: E731


def where(how, j, a, earlier=None, cards=HERE, hosts=NOWHERE, *, queue=False):
    return elsewhere(how, j, a, earlier, cards, hosts, queue=queue)


def test_another_card_is_none_of_those_on_which_it_failed():
    how = Again("other-card")
    first = where(how, job(), attempt("a"))
    assert (first.cards, first.strict) == (["a"], True)
    second = where(how, job(), attempt("b"), Retry(at="", cards=["a"]))
    assert (second.cards, second.strict) == (["a", "b"], True)
    third = where(how, job(), attempt("c"), Retry(at="", cards=["a", "b"]))
    assert (third.cards, third.strict) == (["c"], True), "all have failed: at least not the last again"


@pytest.mark.parametrize("otherwise", ["any", "no"])
def test_where_there_is_no_other_card_the_policy_says_what_then(otherwise):
    found = where(Again("other-card", otherwise), job(2), attempt("a", "b"))
    assert found.possible is (otherwise == "any")
    assert "there are no other cards" in found.text
    assert not found.strict or otherwise == "no"
    if otherwise == "any":
        assert found.cards == ["a", "b"], "still taken last"


def test_a_job_of_the_cpu_has_no_other_card_to_ask_for():
    assert where(Again("other-card", "no"), job(0), attempt()).possible


def test_one_host_has_no_other():
    assert not where(Again("other-host", "no"), job(), attempt("a")).possible
    assert where(Again("other-host"), job(), attempt("a")).cards == ["a"], "then at least another card"
    assert "no other host" in where(Again("other-host"), job(0), attempt()).text


def test_a_cluster_is_asked_for_another_host_since_it_chooses_the_cards_itself():
    has = lambda without: set(without) < {"n1", "n2"}  # noqa: E731
    for how in (Again("other-card"), Again("other-host")):
        assert where(how, job(), attempt("x", hosts=["n1"]), hosts=has, queue=True).hosts == ["n1"]
    again_ = where(how, job(), attempt("x", hosts=["n2"]), Retry(at="", hosts=["n1"]), hosts=has, queue=True)
    assert again_.hosts == ["n2"]
    assert not where(Again("other-host", "no"), job(), attempt(hosts=["n1"]), queue=True).possible


NCCL = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error, NCCL version 2.21.5"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_LEASE_DIR", str(tmp_path / "leases"))

    def run(jobs, rules, cards="2", again_from=None, runs=Runner):
        document = {"retry": {"rules": rules}, "suites": {"s": {"jobs": jobs}}}
        (tmp_path / "matrix.yaml").write_text(json.dumps(document))
        spec = read(tmp_path / "matrix.yaml")
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        record = again_from or records.new_record(spec, select(spec), "r1", "local")
        engine = LocalEngine(pretended(cards))
        expected = {job.name: 1.0 for job in spec.jobs}
        runner = runs(
            record, spec.jobs, Place(tmp_path, folder), engine, expected=expected, cpu_jobs=2, policy=spec.retry
        )
        try:
            asyncio.run(runner.run())
        finally:
            engine.close()
        return load(folder / "run.json")

    return run


def fails_unless(condition, says=NCCL):
    return f"{condition} || {{ echo '{says}'; exit 1; }}"


def test_a_job_that_failed_on_a_card_passes_on_another_and_says_so(run):
    one = {"command": fails_unless("[ $CUDA_VISIBLE_DEVICES = 1 ]"), "cards": 1, "retries": 1}
    record = run({"j": one}, [{"categories": "nccl_error", "where": "other-card", "wait": "50ms"}])
    j = record.job("j")
    assert [a.status for a in j.attempts] == ["failed", "passed"]
    assert [a.cards[0].index for a in j.attempts] == [0, 1]
    assert [c.category for c in j.attempts[0].causes] == ["nccl_error"], "results of all attempts are kept"
    assert j.reason == "passed on attempt 2 (attempt 1: nccl_error)"
    (told,) = [f.value for f in j.facts if f.key == "tried_again"]
    assert "another card than PRETENDED-0" in told


@pytest.mark.parametrize(("otherwise", "attempts"), [("any", 2), ("no", 1)])
def test_without_another_card_what_there_is_is_used_or_not(run, otherwise, attempts):
    rule = {"categories": "nccl_error", "where": "other-card", "otherwise": otherwise}
    record = run({"j": {"command": fails_unless("false"), "cards": 1, "retries": 1}}, [rule], cards="1")
    j = record.job("j")
    assert len(j.attempts) == attempts
    assert any("there is no other card" in str(f.value) for f in j.facts)


def test_a_pause_holds_no_card_and_keeps_nobody_waiting(run):
    pausing = {"command": fails_unless("[ $MATRIX_ATTEMPT = 2 ]"), "cards": 1, "retries": 1}
    jobs = {"a": pausing, **{f"b{i}": {"command": "sleep 0.1", "cards": 1} for i in range(3)}}
    start = time.monotonic()
    record = run(jobs, [{"categories": "nccl_error", "wait": "2s"}], cards="1")
    assert record.status == "passed"
    assert time.monotonic() - start >= 2
    order = [(a.started, j.name, a.n) for j in record.jobs for a in j.attempts]
    assert max(order)[1:] == ("a", 2), "the others ran while it paused"


def test_a_pause_outlives_its_runner(run, tmp_path):
    rules = [{"categories": "nccl_error", "wait": "1h"}]
    jobs = {"j": {"command": fails_unless("[ -e mended ]"), "cards": 1, "retries": 1}}

    class Killed(Runner):
        """Goes away once a job pauses: what is on disk then is all that is left."""

        async def something_happens(self):
            if any(r.retry for r in self.state.pending()):
                raise KeyboardInterrupt
            await super().something_happens()

    with pytest.raises(KeyboardInterrupt):
        run(jobs, rules, runs=Killed)
    left = load(tmp_path / "run" / "run.json")
    assert left.job("j").status == "pending"
    assert left.job("j").retried == 1
    assert left.job("j").retry.at > left.job("j").attempts[0].ended
    left.job("j").retry.at = left.job("j").attempts[0].ended  # the hour is over
    (tmp_path / "mended").touch()
    record = run(jobs, rules, again_from=left)
    assert [a.status for a in record.job("j").attempts] == ["failed", "passed"]


def test_a_resumed_run_has_no_more_attempts_than_one_that_was_not(run, tmp_path):
    jobs = {"j": {"command": fails_unless("false"), "cards": 1, "retries": 1}}
    record = run(jobs, [{"categories": "nccl_error"}])
    assert len(record.job("j").attempts) == 2
    left = record.model_copy(deep=True)
    records.again(left, ["j"], failed=False)
    assert len(run(jobs, [{"categories": "nccl_error"}], again_from=left).job("j").attempts) == 4, (
        "a re-run counts anew"
    )
